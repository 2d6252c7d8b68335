/* Columns of messages: see natsctl/spark/source, whose modules fetch, frames and arrays describe what is read here.

A column of bytes is two objects, as Arrow has it: offsets of 32 bits, one more than rows, and data. Readers return None
for whatever is damaged or unusual, and Python reads it again and says why. */

#include "native.h"

#define LONGEST_LINE (1 << 20) /* that is waited for: natsctl/wire/server_frames.py */
#define SIZE_DIGITS 9
#define PLACE_DIGITS 18
#define LONGEST_REPLY 11 /* tokens of a reply subject with domain and account: natsctl/spark/source/link.py */
#define PLACES 4

enum { SUBJECT, HEADER, VALUE, TEXTS };

typedef struct {
    uint64_t seq, ts_ns;
    Piece text[TEXTS];
} Row;

typedef struct {
    Buffer rows;
    size_t sizes[TEXTS];
} Table;

static int put_row(Table *table, const Row *row)
{
    char *at = grow(&table->rows, sizeof *row);
    if (at == NULL)
        return -1;
    memcpy(at, row, sizeof *row);
    for (int text = 0; text < TEXTS; text++)
        table->sizes[text] += row->text[text].size;
    return 0;
}

static PyObject *new_bytes(size_t size, char **at)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    *at = bytes ? PyBytes_AsString(bytes) : NULL;
    return bytes;
}

static int set_numbers(PyObject *columns, Py_ssize_t place, const Row *rows, size_t count, int time)
{
    char *at;
    PyObject *numbers = new_bytes(8 * count, &at);
    if (numbers == NULL)
        return -1;
    for (size_t row = 0; row < count; row++)
        memcpy(at + 8 * row, time ? &rows[row].ts_ns : &rows[row].seq, 8);
    return PyTuple_SetItem(columns, place, numbers);
}

static int set_texts(PyObject *columns, Py_ssize_t place, const Row *rows, size_t count, int text, size_t size)
{
    char *end_at, *at;
    PyObject *ends = new_bytes(4 * (count + 1), &end_at), *data = new_bytes(size, &at);
    if (ends != NULL && data != NULL) {
        uint32_t end = 0;
        memcpy(end_at, &end, 4);
        for (size_t row = 0; row < count; row++) {
            const Piece *piece = &rows[row].text[text];
            if (piece->size)
                at = put_bytes(at, piece->at, piece->size);
            end += (uint32_t)piece->size;
            memcpy(end_at += 4, &end, 4);
        }
        return PyTuple_SetItem(columns, place, ends) < 0 ? -1 : PyTuple_SetItem(columns, place + 1, data);
    }
    Py_XDECREF(ends);
    Py_XDECREF(data);
    return -1;
}

/* (sequences, times, offsets and bytes of subjects, of header blocks, of payloads); None for header blocks that are all
   empty, and for what is not wanted. The table is empty afterwards. */
static PyObject *take_columns(Table *table, int headers, int values)
{
    const Row *rows = (const Row *)(void *)table->rows.data;
    size_t count = table->rows.size / sizeof *rows;
    const int wanted[TEXTS] = {1, headers && table->sizes[HEADER], values};
    PyObject *columns = PyTuple_New(2 + 2 * TEXTS);
    int failed = columns == NULL || set_numbers(columns, 0, rows, count, 0) < 0 || set_numbers(columns, 1, rows, count, 1) < 0;
    for (int text = 0; text < TEXTS && !failed; text++) {
        Py_ssize_t place = 2 + 2 * text;
        failed = wanted[text] ? set_texts(columns, place, rows, count, text, table->sizes[text]) < 0
                              : PyTuple_SetItem(columns, place, Py_NewRef(Py_None)) < 0 ||
                                    PyTuple_SetItem(columns, place + 1, Py_NewRef(Py_None)) < 0;
    }
    PyMem_Free(table->rows.data);
    memset(table, 0, sizeof *table);
    if (failed)
        Py_CLEAR(columns);
    return columns;
}

/* Reads the frames of a block; returns 0 for one that is not as it says, and -1 with an exception set. */
static int read_block(Table *table, const char *data, size_t size)
{
    const uint8_t *at = (const uint8_t *)data;
    uint64_t count = size >= 4 ? load_32(at) : UINT64_MAX;
    if (count > (size - 4) / 4)
        return 0;
    const uint8_t *sizes = at + 4, *frame = sizes + 4 * count, *end = at + size;
    for (uint64_t number = 0; number < count; number++) {
        uint64_t length = (uint64_t)load_32(sizes + 4 * number) + OVER_SIZE, left = (uint64_t)(end - frame);
        if (length < HEAD_BYTES || length > left || load_32(frame) != MAGIC || load_32(frame + 4) != length ||
            frame[12] != MESSAGE)
            return 0;
        uint64_t subject = frame[14] | (uint64_t)frame[15] << 8, body = HEAD_BYTES + subject, header = 0;
        if (frame[13] & HAS_HEADER) {
            body += 4;
            header = body <= length ? load_32(frame + body - 4) : 0;
        }
        if (body + header > length)
            return 0;
        Row row = {load_64(frame + 16), load_64(frame + 24), {{(const char *)frame + HEAD_BYTES, subject},
                   {(const char *)frame + body, header}, {(const char *)frame + body + header, length - body - header}}};
        if (put_row(table, &row) < 0)
            return -1;
        frame += length;
    }
    return frame == end;
}

PyDoc_STRVAR(block_columns_doc,
             "block_columns(block, headers, values) -> columns or None\n\n"
             "Return the messages of an answer of STREAM.BLOCKS, column by column: sequences, times, and offsets and bytes\n"
             "of subjects, header blocks and payloads; None for what is not wanted, and for headers that are all empty.");

static PyObject *block_columns(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (takes("block_columns", count, 3) < 0)
        return NULL;
    int headers = truth_of(args[1]), values = truth_of(args[2]);
    Py_buffer block;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &block, PyBUF_SIMPLE) < 0)
        return NULL;
    Table table = {0};
    int read = block.len <= INT32_MAX ? read_block(&table, block.buf, (size_t)block.len) : 0;
    PyObject *columns = read > 0 ? take_columns(&table, headers, values) : read ? NULL : Py_NewRef(Py_None);
    PyMem_Free(table.rows.data);
    PyBuffer_Release(&block);
    return columns;
}

/* The end of a line, or NULL. */
static const char *line_end(const char *at, const char *end)
{
    while ((at = memchr(at, '\r', (size_t)(end - at))) != NULL) {
        if (end - at >= 2 && at[1] == '\n')
            return at;
        at++;
    }
    return NULL;
}

static int put_text(Buffer *data, Buffer *ends, const char *text, size_t size)
{
    if (size) {
        char *at = grow(data, size);
        if (at == NULL)
            return -1;
        memcpy(at, text, size);
    }
    return put_32(ends, (uint32_t)data->size);
}

typedef struct {
    Buffer keys, key_ends, values, value_ends, list_ends;
    uint32_t count;
} Headers;

/* Adds the headers of a block and returns how many there are; -1 with an exception set. */
static int64_t put_headers(Headers *headers, const char *at, const char *end)
{
    uint32_t before = headers->count;
    const char *line = line_end(at, end);
    while (line != NULL) {
        at = line + 2;
        line = line_end(at, end);
        const char *stop = line ? line : end, *colon = memchr(at, ':', (size_t)(stop - at));
        if (colon == NULL)
            continue;
        const char *value = colon + 1;
        while (value < stop && (*value == ' ' || *value == '\t'))
            value++;
        if (put_text(&headers->keys, &headers->key_ends, at, (size_t)(colon - at)) < 0 ||
            put_text(&headers->values, &headers->value_ends, value, (size_t)(stop - value)) < 0)
            return -1;
        headers->count++;
    }
    return (int64_t)headers->count - before;
}

/* Reads blocks; returns 0 where their offsets lie outside of the data, and -1 with an exception set. */
static int read_headers(Headers *headers, const Py_buffer *offsets, const Py_buffer *data, Py_ssize_t first, Py_ssize_t count,
                        char *valid)
{
    if (put_32(&headers->key_ends, 0) < 0 || put_32(&headers->value_ends, 0) < 0 || put_32(&headers->list_ends, 0) < 0)
        return -1;
    for (Py_ssize_t row = 0; row < count; row++) {
        int32_t bounds[2];
        memcpy(bounds, (const char *)offsets->buf + 4 * (first + row), sizeof bounds);
        if (bounds[0] < 0 || bounds[1] < bounds[0] || bounds[1] > data->len)
            return 0;
        int64_t found = 0;
        if (bounds[1] > bounds[0])
            found = put_headers(headers, (const char *)data->buf + bounds[0], (const char *)data->buf + bounds[1]);
        if (found < 0 || put_32(&headers->list_ends, headers->count) < 0)
            return -1;
        if (found)
            valid[row / 8] = (char)(valid[row / 8] | 1 << row % 8);
    }
    return 1;
}

PyDoc_STRVAR(header_lists_doc,
             "header_lists(offsets, data, first, count) -> (valid, list_ends, key_ends, keys, value_ends, values) or None\n\n"
             "Return the headers in `count` blocks from the first on: a bit for each block that has some, and columns.");

static PyObject *header_lists(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    if (takes("header_lists", given, 4) < 0)
        return NULL;
    Py_ssize_t first = index_of(args[2]), count = index_of(args[3]);
    Py_buffer offsets, data;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &offsets, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[1], &data, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&offsets);
        return NULL;
    }
    int read = first >= 0 && count >= 0 && offsets.len / 4 > first && count <= offsets.len / 4 - first - 1;
    size_t bytes = read ? ((size_t)count + 7) / 8 : 0;
    Headers headers = {0};
    char *valid;
    PyObject *result = NULL, *bits = new_bytes(bytes, &valid);
    if (bits == NULL) {
        read = -1;
    } else if (read) {
        memset(valid, 0, bytes);
        read = read_headers(&headers, &offsets, &data, first, count, valid);
    }
    Buffer *const columns[5] = {&headers.list_ends, &headers.key_ends, &headers.keys, &headers.value_ends, &headers.values};
    if (read > 0 && (result = PyTuple_New(6)) != NULL) {
        int failed = PyTuple_SetItem(result, 0, Py_NewRef(bits)) < 0;
        for (int place = 0; place < 5 && !failed; place++) {
            PyObject *column = take_buffer(columns[place]);
            failed = column == NULL || PyTuple_SetItem(result, place + 1, column) < 0;
        }
        if (failed)
            Py_CLEAR(result);
    }
    for (int place = 0; place < 5; place++)
        PyMem_Free(columns[place]->data);
    Py_XDECREF(bits);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    return read ? result : Py_NewRef(Py_None);
}

/* The number that digits spell; -1 for anything else, and for more digits than `most`. */
static int64_t number_in(const char *at, const char *end, int most)
{
    int64_t number = 0;
    if (at == end || end - at > most)
        return -1;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return -1;
        number = number * 10 + (*at - '0');
    }
    return number;
}

/* Reads the numbers that end a reply subject: sequence, delivery, time, pending. Returns 0 for any other subject. */
static int read_place(const Piece *reply, int64_t place[PLACES])
{
    const char *end = reply->at + reply->size, *dots[LONGEST_REPLY + 2];
    size_t count = 0;
    for (const char *at = reply->at; at < end; at++)
        if (*at == '.') {
            if (count == sizeof dots / sizeof *dots)
                return 0;
            dots[count++] = at;
        }
    size_t last = count + 1 > LONGEST_REPLY ? count : count + 1;
    if (last <= PLACES)
        return 0;
    for (size_t at = 0; at < PLACES; at++) {
        size_t token = last - PLACES + at;
        place[at] = number_in(dots[token - 1] + 1, token < count ? dots[token] : end, PLACE_DIGITS);
        if (place[at] < 0)
            return 0;
    }
    return 1;
}

typedef struct {
    Table table;
    Buffer others; /* begin and end of what is no delivery, as 64-bit numbers */
    int64_t first[PLACES], last[PLACES];
    size_t end;
} Window;

typedef struct {
    const char *sid, *inbox;
    size_t sid_size, inbox_size;
} Subscription;

static int put_other(Window *window, uint64_t begin, uint64_t end)
{
    char *at = grow(&window->others, 16);
    if (at == NULL)
        return -1;
    memcpy(at, &begin, 8);
    memcpy(at + 8, &end, 8);
    return 0;
}

/* Reads the whole frames in some data; returns 0 for anything unusual, and -1 with an exception set. */
static int read_window(Window *window, const char *data, size_t size, const Subscription *sub)
{
    const char *at = data, *end = data + size, *line;
    for (; (line = line_end(at, end)) != NULL; window->end = (size_t)(at - data)) {
        int headed = *at == 'H', verb = 3 + headed;
        if (line - at < verb || memcmp(at + headed, "MSG", 3) || (line - at > verb && at[verb] != ' ')) {
            if (put_other(window, (uint64_t)(at - data), (uint64_t)(line + 2 - data)) < 0)
                return -1;
            at = line + 2;
            continue;
        }
        Piece word[6];
        int words = 0;
        for (const char *begin = at + verb + 1; begin <= line; words++) {
            const char *blank = memchr(begin, ' ', (size_t)(line - begin)), *stop = blank ? blank : line;
            if (words == 6 || stop == begin)
                return 0;
            word[words] = (Piece){begin, (size_t)(stop - begin)};
            begin = stop + 1;
        }
        if (words < 3 + headed || words > 4 + headed)
            return 0;
        const Piece *sizes = &word[words - 1 - headed];
        int64_t header = headed ? number_in(sizes->at, sizes->at + sizes->size, SIZE_DIGITS) : 0;
        sizes += headed;
        int64_t whole = number_in(sizes->at, sizes->at + sizes->size, SIZE_DIGITS);
        const char *body = line + 2;
        if (header < 0 || whole < header)
            return 0;
        if (end - body < whole + 2)
            return 1;
        const char *next = body + whole + 2;
        if (word[1].size != sub->sid_size || memcmp(word[1].at, sub->sid, sub->sid_size) ||
            (word[0].size >= sub->inbox_size && !memcmp(word[0].at, sub->inbox, sub->inbox_size))) {
            if (put_other(window, (uint64_t)(at - data), (uint64_t)(next - data)) < 0)
                return -1;
        } else {
            if (words < 4 + headed || !read_place(&word[2], window->last))
                return 0;
            if (!window->table.rows.size)
                memcpy(window->first, window->last, sizeof window->first);
            Row row = {(uint64_t)window->last[0], (uint64_t)window->last[2],
                       {word[0], {body, (size_t)header}, {body + header, (size_t)(whole - header)}}};
            if (put_row(&window->table, &row) < 0)
                return -1;
        }
        at = next;
    }
    return end - at <= LONGEST_LINE;
}

static PyObject *place_tuple(const int64_t place[PLACES])
{
    return Py_BuildValue("LLLL", (long long)place[0], (long long)place[1], (long long)place[2], (long long)place[3]);
}

PyDoc_STRVAR(deliveries_doc,
             "deliveries(data, sid, inbox, headers, values) -> (end, others, first, last, columns) or None\n\n"
             "Return the messages of one subscription, except those on subjects that begin with `inbox`, column by column as\n"
             "block_columns does, and the places of the first and the last; where the whole frames end; begin and end of\n"
             "each other frame, as 64-bit numbers.");

static PyObject *deliveries(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t size = 0, sizes[2] = {0};
    (void)module;
    if (takes("deliveries", count, 5) < 0)
        return NULL;
    int headers = truth_of(args[3]), values = truth_of(args[4]);
    const char *data = PyErr_Occurred() ? NULL : bytes_of(args[0], &size);
    Subscription sub = {data ? bytes_of(args[1], &sizes[0]) : NULL, NULL, 0, 0};
    sub.inbox = sub.sid ? bytes_of(args[2], &sizes[1]) : NULL;
    if (sub.inbox == NULL)
        return NULL;
    sub.sid_size = (size_t)sizes[0];
    sub.inbox_size = (size_t)sizes[1];
    Window window = {0};
    int read = size <= INT32_MAX ? read_window(&window, data, (size_t)size, &sub) : 0;
    PyObject *result = read ? NULL : Py_NewRef(Py_None);
    if (read > 0) {
        int any = window.table.rows.size > 0;
        PyObject *others = take_buffer(&window.others);
        PyObject *first = any ? place_tuple(window.first) : Py_NewRef(Py_None);
        PyObject *last = any ? place_tuple(window.last) : Py_NewRef(Py_None);
        PyObject *columns = take_columns(&window.table, headers, values);
        if (others && first && last && columns)
            result = Py_BuildValue("nOOOO", (Py_ssize_t)window.end, others, first, last, columns);
        Py_XDECREF(others);
        Py_XDECREF(first);
        Py_XDECREF(last);
        Py_XDECREF(columns);
    }
    PyMem_Free(window.table.rows.data);
    PyMem_Free(window.others.data);
    return result;
}

PyMethodDef message_methods[] = {
    {"block_columns", (PyCFunction)(void (*)(void))block_columns, METH_FASTCALL, block_columns_doc},
    {"deliveries", (PyCFunction)(void (*)(void))deliveries, METH_FASTCALL, deliveries_doc},
    {"header_lists", (PyCFunction)(void (*)(void))header_lists, METH_FASTCALL, header_lists_doc},
    {NULL, NULL, 0, NULL},
};
