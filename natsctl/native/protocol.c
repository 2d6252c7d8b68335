/* The client protocol: see natsctl/wire/parser.py and natsctl/broker/subscription.py. */

#include "native.h"

enum { PUB = 0, SUB = 1, UNSUB = 2 }; /* natsctl/wire/ops.py */
enum { MOST_FIELDS = 5, MAX_SIZE_DIGITS = 9 };

static PyObject *kinds[3], *no_bytes, *zero;

int protocol_init(PyObject *module)
{
    (void)module;
    for (long kind = PUB; kind <= UNSUB; kind++)
        if ((kinds[kind] = PyLong_FromLong(kind)) == NULL)
            return -1;
    no_bytes = PyBytes_FromStringAndSize("", 0);
    zero = PyLong_FromLong(0);
    return no_bytes && zero ? 0 : -1;
}

typedef struct {
    const char *at;
    Py_ssize_t size;
} Word;

/* Splits a line at blanks; -1 where it has too many words, or bytes that need a closer look. */
static int split(const char *at, const char *end, Word *words)
{
    int count = 0;
    for (;;) {
        while (at < end && *at == ' ')
            at++;
        if (at == end)
            return count;
        if (count == MOST_FIELDS)
            return -1;
        words[count].at = at;
        while (at < end && *at != ' ') {
            if ((unsigned char)*at < ' ')
                return -1;
            at++;
        }
        words[count].size = at - words[count].at;
        count++;
    }
}

/* The number in a plain size argument; -1 for any other. */
static Py_ssize_t number_of(Word word)
{
    Py_ssize_t number = 0;
    if (word.size > MAX_SIZE_DIGITS || (word.at[0] == '0' && word.size > 1))
        return -1;
    for (Py_ssize_t at = 0; at < word.size; at++) {
        if (word.at[at] < '0' || word.at[at] > '9')
            return -1;
        number = number * 10 + (word.at[at] - '0');
    }
    return number;
}

static PyObject *bytes_at(const char *at, Py_ssize_t size)
{
    if (!size)
        return Py_NewRef(no_bytes);
    return PyBytes_FromStringAndSize(at, size);
}

/* The word as bytes: `before` itself where it says the same. */
static PyObject *same_or_new(PyObject *before, Word word)
{
    if (before != NULL && PyBytes_Size(before) == word.size && !memcmp(PyBytes_AsString(before), word.at, word.size))
        return Py_NewRef(before);
    return bytes_at(word.at, word.size);
}

/* Appends a tuple to `ops`, and takes over the references of its members, of which one may be NULL. */
static int append_op(PyObject *ops, int kind, PyObject **members, int count)
{
    PyObject *op = PyTuple_New(1 + count);
    int failed = op == NULL;
    if (op != NULL)
        PyTuple_SetItem(op, 0, Py_NewRef(kinds[kind]));
    for (int at = 0; at < count; at++) {
        failed |= members[at] == NULL;
        if (op != NULL)
            PyTuple_SetItem(op, at + 1, members[at]);
        else
            Py_XDECREF(members[at]);
    }
    failed = failed || PyList_Append(ops, op) < 0;
    Py_XDECREF(op);
    return failed ? -1 : 0;
}

typedef struct {
    const char *data, *end;
    Py_ssize_t max_line, max_payload;
    PyObject *ops, *subject;
} Reading;

/* Reads a PUB or HPUB with its body, and returns where it ends; NULL where it is not complete or not plain. */
static const char *read_publish(Reading *reading, const Word *words, int count, const char *body)
{
    int headed = words[0].size == 4, fixed = headed ? 4 : 3;
    if (count != fixed && count != fixed + 1)
        return NULL;
    Py_ssize_t size = number_of(words[count - 1]), header_size = headed ? number_of(words[count - 2]) : 0;
    if (size < 0 || header_size < 0 || header_size > size || size > reading->max_payload)
        return NULL;
    if (reading->end - body < size + 2 || body[size] != '\r' || body[size + 1] != '\n')
        return NULL;
    PyObject *members[4] = {
        same_or_new(reading->subject, words[1]),
        count > fixed ? bytes_at(words[2].at, words[2].size) : Py_NewRef(no_bytes),
        bytes_at(body, header_size),
        bytes_at(body + header_size, size - header_size),
    };
    reading->subject = members[0]; /* lives in its operation */
    return append_op(reading->ops, PUB, members, 4) < 0 ? NULL : body + size + 2;
}

static int read_subscribe(Reading *reading, const Word *words, int count)
{
    PyObject *members[3] = {
        bytes_at(words[1].at, words[1].size),
        count == 4 ? bytes_at(words[2].at, words[2].size) : Py_NewRef(no_bytes),
        bytes_at(words[count - 1].at, words[count - 1].size),
    };
    return append_op(reading->ops, SUB, members, 3);
}

static int read_unsubscribe(Reading *reading, const Word *words)
{
    PyObject *members[2] = {bytes_at(words[1].at, words[1].size), Py_NewRef(zero)};
    return append_op(reading->ops, UNSUB, members, 2);
}

static int is_verb(Word word, const char *verb, Py_ssize_t size)
{
    return word.size == size && !memcmp(word.at, verb, (size_t)size);
}

/* Reads the operation at `at`, and returns where it ends; NULL where it needs a closer look, or with an exception. */
static const char *read_op(Reading *reading, const char *at)
{
    Word words[MOST_FIELDS];
    const char *feed = memchr(at, '\n', (size_t)(reading->end - at));
    if (feed == NULL || feed == at || feed[-1] != '\r' || feed - at > reading->max_line || *at == ' ')
        return NULL;
    int count = split(at, feed - 1, words);
    if (count < 2)
        return NULL;
    if (is_verb(words[0], "PUB", 3) || is_verb(words[0], "HPUB", 4))
        return read_publish(reading, words, count, feed + 1);
    if (is_verb(words[0], "SUB", 3) && (count == 3 || count == 4))
        return read_subscribe(reading, words, count) < 0 ? NULL : feed + 1;
    if (is_verb(words[0], "UNSUB", 5) && count == 2)
        return read_unsubscribe(reading, words) < 0 ? NULL : feed + 1;
    return NULL;
}

PyDoc_STRVAR(read_doc, "read_ops(chunk, max_line, max_payload, ops) -> int\n\n"
                       "Append the leading plain operations of a chunk to `ops`, and return how many bytes they take.");

static PyObject *read_ops(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t size;
    (void)module;
    if (takes("read_ops", count, 4) < 0)
        return NULL;
    Reading reading = {.data = bytes_of(args[0], &size), .ops = args[3]};
    if (reading.data == NULL)
        return NULL;
    reading.end = reading.data + size;
    reading.max_line = PyLong_AsSsize_t(args[1]);
    reading.max_payload = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred())
        return NULL;
    const char *at = reading.data, *next;
    while (at < reading.end && (next = read_op(&reading, at)) != NULL)
        at = next;
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(at - reading.data);
}

static int begins(PyObject *text, const char *start, Py_ssize_t size)
{
    return PyBytes_Size(text) >= size && !memcmp(PyBytes_AsString(text), start, (size_t)size);
}

PyDoc_STRVAR(run_doc, "plain_run(ops, start, subject, reserved) -> (end, bytes)\n\n"
                      "Return where messages on `subject` without headers end, and their bytes.\n"
                      "A reply that begins with a member of `reserved`, three bytes each, ends them too.");

static PyObject *plain_run(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (takes("plain_run", count, 4) < 0)
        return NULL;
    Py_ssize_t at = PyLong_AsSsize_t(args[1]), length = PyList_Size(args[0]), bytes = 0, subject_size;
    const char *subject = bytes_of(args[2], &subject_size);
    if (subject == NULL || PyErr_Occurred())
        return NULL;
    for (; at < length; at++) {
        PyObject *op = PyList_GetItem(args[0], at);
        if (PyTuple_Size(op) != 5 || PyTuple_GetItem(op, 0) != kinds[PUB])
            break;
        PyObject *own = PyTuple_GetItem(op, 1), *reply = PyTuple_GetItem(op, 2);
        if (own != args[2] && (PyBytes_Size(own) != subject_size || !begins(own, subject, subject_size)))
            break;
        if (PyBytes_Size(PyTuple_GetItem(op, 3)))
            break;
        if (PyBytes_Size(reply) >= 3) {
            PyObject *head = PyBytes_FromStringAndSize(PyBytes_AsString(reply), 3);
            int reserved = head == NULL ? -1 : PySet_Contains(args[3], head);
            Py_XDECREF(head);
            if (reserved < 0)
                return NULL;
            if (reserved)
                break;
        }
        bytes += PyBytes_Size(PyTuple_GetItem(op, 4));
    }
    return PyErr_Occurred() ? NULL : Py_BuildValue("nn", at, bytes);
}

PyDoc_STRVAR(acks_doc, "ack_frames(entries, opening, sid_field, start, end) -> (frames, body_bytes, count)\n\n"
                       "Return as MSG the acks of entries (seq, subject, reply) that have a reply.");

static PyObject *ack_frames(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t opening_size, sid_size, bodies = 0, sent = 0;
    Buffer out = {0};
    (void)module;
    if (takes("ack_frames", count, 5) < 0)
        return NULL;
    const char *opening = bytes_of(args[1], &opening_size), *sid = bytes_of(args[2], &sid_size);
    Py_ssize_t at = PyLong_AsSsize_t(args[3]), end = PyLong_AsSsize_t(args[4]);
    if (opening == NULL || sid == NULL || PyErr_Occurred())
        return NULL;
    for (; at < end; at++) {
        PyObject *entry = PyList_GetItem(args[0], at);
        Py_ssize_t reply_size;
        if (entry == NULL || !PyTuple_Check(entry) || PyTuple_Size(entry) != 3) {
            PyErr_SetString(PyExc_TypeError, "an entry is (seq, subject, reply)");
            goto failed;
        }
        const char *reply = bytes_of(PyTuple_GetItem(entry, 2), &reply_size);
        if (reply == NULL)
            goto failed;
        if (!reply_size)
            continue;
        char number[20], *digits_end = put_number(number, PyLong_AsUnsignedLongLong(PyTuple_GetItem(entry, 0)));
        if (PyErr_Occurred())
            goto failed;
        size_t digits = (size_t)(digits_end - number), body = (size_t)opening_size + digits + 1;
        size_t room = 4 + (size_t)reply_size + (size_t)sid_size + 20 + 2 + body + 2;
        char *begin = grow(&out, room), *to = begin;
        if (to == NULL)
            return NULL;
        to = put_bytes(to, "MSG ", 4);
        to = put_bytes(to, reply, (size_t)reply_size);
        to = put_bytes(to, sid, (size_t)sid_size);
        to = put_number(to, body);
        to = put_bytes(to, "\r\n", 2);
        to = put_bytes(to, opening, (size_t)opening_size);
        to = put_bytes(to, number, digits);
        to = put_bytes(to, "}\r\n", 3);
        out.size -= room - (size_t)(to - begin);
        bodies += (Py_ssize_t)body;
        sent++;
    }
    PyObject *frames = take_buffer(&out);
    return frames == NULL ? NULL : Py_BuildValue("Nnn", frames, bodies, sent);
failed:
    PyMem_Free(out.data);
    return NULL;
}

PyDoc_STRVAR(inbox_doc, "one_inbox(entries, start, shared) -> int\n\n"
                        "Return where entries end whose replies are `shared` and one more token, or empty.");

static PyObject *one_inbox(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t size;
    (void)module;
    if (takes("one_inbox", count, 3) < 0)
        return NULL;
    Py_ssize_t at = PyLong_AsSsize_t(args[1]), length = PyList_Size(args[0]);
    const char *shared = bytes_of(args[2], &size);
    if (shared == NULL || PyErr_Occurred())
        return NULL;
    for (; at < length; at++) {
        Py_ssize_t reply_size;
        const char *reply = bytes_of(PyTuple_GetItem(PyList_GetItem(args[0], at), 2), &reply_size);
        if (reply == NULL)
            return NULL;
        if (!reply_size)
            continue;
        if (reply_size <= size || memcmp(reply, shared, (size_t)size) || memchr(reply + size, '.', (size_t)(reply_size - size)))
            break;
    }
    return PyLong_FromSsize_t(at);
}

/* A message as its client is sent it: MSG, or HMSG where it has a header and the client takes headers. */
static int put_message(Buffer *out, PyObject *message, Py_ssize_t first, const char *sid, size_t sid_size, int headers,
                       Py_ssize_t *body)
{
    const char *part[4];
    Py_ssize_t size[4];
    for (Py_ssize_t at = 0; at < 4; at++)
        if ((part[at] = bytes_of(PyTuple_GetItem(message, first + at), &size[at])) == NULL)
            return -1;
    if (!headers)
        size[2] = 0;
    size_t room = 5 + (size_t)(size[0] + size[1] + size[2] + size[3]) + sid_size + 1 + 20 + 1 + 20 + 4;
    char *begin = grow(out, room), *to = begin;
    if (to == NULL)
        return -1;
    to = size[2] ? put_bytes(to, "HMSG ", 5) : put_bytes(to, "MSG ", 4);
    to = put_bytes(to, part[0], (size_t)size[0]);
    to = put_bytes(to, sid, sid_size);
    if (size[1]) {
        to = put_bytes(to, part[1], (size_t)size[1]);
        *to++ = ' ';
    }
    if (size[2]) {
        to = put_number(to, (uint64_t)size[2]);
        *to++ = ' ';
    }
    to = put_number(to, (uint64_t)(size[2] + size[3]));
    to = put_bytes(to, "\r\n", 2);
    to = put_bytes(to, part[2], (size_t)size[2]);
    to = put_bytes(to, part[3], (size_t)size[3]);
    to = put_bytes(to, "\r\n", 2);
    out->size -= room - (size_t)(to - begin);
    *body += size[2] + size[3];
    return 0;
}

PyDoc_STRVAR(messages_doc, "message_frames(messages, first, sid_field, headers, room) -> (frames, body_bytes, count)\n\n"
                           "Return as MSG and HMSG the members subject, reply, header, payload from `first` on of tuples,\n"
                           "up to the message that takes more than `room` bytes together.");

static PyObject *message_frames(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t sid_size, body = 0, at = 0;
    Buffer out = {0};
    (void)module;
    if (takes("message_frames", count, 5) < 0)
        return NULL;
    const char *sid = bytes_of(args[2], &sid_size);
    Py_ssize_t first = PyLong_AsSsize_t(args[1]), room = PyLong_AsSsize_t(args[4]);
    int headers = PyObject_IsTrue(args[3]);
    PyObject *messages = sid == NULL || PyErr_Occurred() ? NULL : list_of(args[0]);
    if (messages == NULL)
        return NULL;
    for (Py_ssize_t length = PyList_Size(messages); at < length; at++) {
        if (put_message(&out, PyList_GetItem(messages, at), first, sid, (size_t)sid_size, headers, &body) < 0) {
            Py_DECREF(messages);
            PyMem_Free(out.data);
            return NULL;
        }
        if ((Py_ssize_t)out.size > room) {
            at++;
            break;
        }
    }
    Py_DECREF(messages);
    PyObject *frames = take_buffer(&out);
    return frames == NULL ? NULL : Py_BuildValue("Nnn", frames, body, at);
}

PyMethodDef protocol_methods[] = {
    {"read_ops", (PyCFunction)(void (*)(void))read_ops, METH_FASTCALL, read_doc},
    {"plain_run", (PyCFunction)(void (*)(void))plain_run, METH_FASTCALL, run_doc},
    {"ack_frames", (PyCFunction)(void (*)(void))ack_frames, METH_FASTCALL, acks_doc},
    {"message_frames", (PyCFunction)(void (*)(void))message_frames, METH_FASTCALL, messages_doc},
    {"one_inbox", (PyCFunction)(void (*)(void))one_inbox, METH_FASTCALL, inbox_doc},
    {NULL, NULL, 0, NULL},
};
