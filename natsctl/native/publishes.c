/* The reader of what clients send, and runs of published messages: see natsctl/wire/publish_run.py.
 *
 * A run keeps its messages as they lie in their chunk. A stream stores them, a client is sent them and their publisher
 * gets its acks without an object for each message; code that needs objects calls `ops()`.
 */

#include "native.h"

#include <stddef.h>
#include <structmember.h>

enum { SUB = 1, UNSUB = 2, RUN = 10 }; /* natsctl/wire/ops.py */
enum { MOST_FIELDS = 5, MAX_SIZE_DIGITS = 9, RUN_MIN = 4, MAX_SEQ_DIGITS = 19 };

/* One message of a run: places in the chunk; the payload follows the header. */
typedef struct {
    uint32_t subject, subject_size, reply, reply_size, header_size, payload, payload_size;
} Publish;

/* Neighboring messages of one kind, as they lie in the chunk that they came in. */
typedef struct {
    PyObject_HEAD
    PyObject *chunk;
    const char *data;
    Publish *items;
    Py_ssize_t count, bytes, longest;
    char has_replies, has_headers;
} PublishRun;


static PyObject *kinds[RUN + 1], *no_bytes, *zero, *run_type;

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

/* Takes over nothing: the items are copied, the chunk is shared. */
static PyObject *new_run(PyObject *chunk, const Publish *items, Py_ssize_t count)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)run_type, Py_tp_alloc);
    PublishRun *self = (PublishRun *)allocate((PyTypeObject *)run_type, 0);
    if (self == NULL)
        return NULL;
    self->items = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *items);
    if (self->items == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    memcpy(self->items, items, (size_t)count * sizeof *items);
    self->chunk = Py_NewRef(chunk);
    self->data = PyBytes_AsString(chunk);
    self->count = count;
    for (const Publish *item = items; item < items + count; item++) {
        Py_ssize_t size = (Py_ssize_t)item->header_size + item->payload_size;
        self->bytes += size;
        self->longest = size > self->longest ? size : self->longest;
        self->has_replies |= item->reply_size > 0;
        self->has_headers |= item->header_size > 0;
    }
    return (PyObject *)self;
}

static void run_free(PyObject *object)
{
    PublishRun *self = (PublishRun *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(self->items);
    Py_XDECREF(self->chunk);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static Py_ssize_t run_length(PyObject *self)
{
    return ((PublishRun *)self)->count;
}

static PyObject *subject_of(const PublishRun *self, Py_ssize_t at)
{
    return bytes_at(self->data + self->items[at].subject, self->items[at].subject_size);
}

static PyObject *reply_of(const PublishRun *self, Py_ssize_t at)
{
    return bytes_at(self->data + self->items[at].reply, self->items[at].reply_size);
}

static PyObject *header_of(const PublishRun *self, Py_ssize_t at)
{
    const Publish *item = &self->items[at];
    return bytes_at(self->data + item->payload - item->header_size, item->header_size);
}

static PyObject *payload_of(const PublishRun *self, Py_ssize_t at)
{
    return bytes_at(self->data + self->items[at].payload, self->items[at].payload_size);
}

/* A list with what `make` returns for each message. */
static PyObject *list_each(PublishRun *self, PyObject *(*make)(PublishRun *, Py_ssize_t, uint64_t), uint64_t first)
{
    PyObject *list = PyList_New(self->count);
    for (Py_ssize_t at = 0; list != NULL && at < self->count; at++) {
        PyObject *one = make(self, at, first + (uint64_t)at);
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, at, one);
    }
    return list;
}

static PyObject *make_op(PublishRun *self, Py_ssize_t at, uint64_t seq)
{
    (void)seq;
    PyObject *subject = subject_of(self, at), *reply = reply_of(self, at);
    PyObject *header = header_of(self, at), *payload = payload_of(self, at);
    if (subject && reply && header && payload)
        return Py_BuildValue("ONNNN", kinds[PUB], subject, reply, header, payload);
    Py_XDECREF(subject);
    Py_XDECREF(reply);
    Py_XDECREF(header);
    Py_XDECREF(payload);
    return NULL;
}

static PyObject *make_subject(PublishRun *self, Py_ssize_t at, uint64_t seq)
{
    (void)seq;
    return subject_of(self, at);
}

static PyObject *make_header(PublishRun *self, Py_ssize_t at, uint64_t seq)
{
    (void)seq;
    return header_of(self, at);
}

static PyObject *make_payload(PublishRun *self, Py_ssize_t at, uint64_t seq)
{
    (void)seq;
    return payload_of(self, at);
}

static PyObject *make_entry(PublishRun *self, Py_ssize_t at, uint64_t seq)
{
    PyObject *subject = subject_of(self, at), *reply = reply_of(self, at);
    if (subject && reply)
        return Py_BuildValue("KNN", (unsigned long long)seq, subject, reply);
    Py_XDECREF(subject);
    Py_XDECREF(reply);
    return NULL;
}

PyDoc_STRVAR(ops_doc, "ops() -> [(PUB, subject, reply, header, payload), ...]");

static PyObject *run_ops(PyObject *self, PyObject *unused)
{
    (void)unused;
    return list_each((PublishRun *)self, make_op, 0);
}

PyDoc_STRVAR(subjects_doc, "subjects() -> [bytes, ...]");

static PyObject *run_subjects(PyObject *self, PyObject *unused)
{
    (void)unused;
    return list_each((PublishRun *)self, make_subject, 0);
}

PyDoc_STRVAR(headers_doc, "headers() -> [bytes, ...]");

static PyObject *run_headers(PyObject *self, PyObject *unused)
{
    (void)unused;
    return list_each((PublishRun *)self, make_header, 0);
}

PyDoc_STRVAR(payloads_doc, "payloads() -> [bytes, ...]");

static PyObject *run_payloads(PyObject *self, PyObject *unused)
{
    (void)unused;
    return list_each((PublishRun *)self, make_payload, 0);
}

PyDoc_STRVAR(entries_doc, "entries(first_seq) -> [(seq, subject, reply), ...]");

static PyObject *run_entries(PyObject *self, PyObject *first_seq)
{
    unsigned long long first = PyLong_AsUnsignedLongLong(first_seq);
    return PyErr_Occurred() ? NULL : list_each((PublishRun *)self, make_entry, first);
}

PyDoc_STRVAR(part_doc, "part(start, end) -> PublishRun");

static PyObject *run_part(PyObject *object, PyObject *args)
{
    PublishRun *self = (PublishRun *)object;
    Py_ssize_t start, end;
    if (!PyArg_ParseTuple(args, "nn", &start, &end))
        return NULL;
    if (start < 0 || start > end || end > self->count)
        return PyErr_Format(PyExc_IndexError, "%zd to %zd of %zd messages", start, end, self->count);
    return new_run(self->chunk, self->items + start, end - start);
}

/* The number of a message of the run, or -1 with IndexError. */
static Py_ssize_t index_in(const PublishRun *self, PyObject *index)
{
    Py_ssize_t at = PyLong_AsSsize_t(index);
    if (PyErr_Occurred())
        return -1;
    if (at >= 0 && at < self->count)
        return at;
    PyErr_Format(PyExc_IndexError, "message %zd of %zd", at, self->count);
    return -1;
}

PyDoc_STRVAR(subject_doc, "subject(index) -> bytes");

static PyObject *run_subject(PyObject *self, PyObject *index)
{
    Py_ssize_t at = index_in((PublishRun *)self, index);
    return at < 0 ? NULL : subject_of((PublishRun *)self, at);
}

PyDoc_STRVAR(reply_doc, "reply(index) -> bytes");

static PyObject *run_reply(PyObject *self, PyObject *index)
{
    Py_ssize_t at = index_in((PublishRun *)self, index);
    return at < 0 ? NULL : reply_of((PublishRun *)self, at);
}

/* Whether a place in the chunk has the same bytes as another. */
static int same(const PublishRun *self, uint32_t one, uint32_t one_size, uint32_t two, uint32_t two_size)
{
    return one_size == two_size && !memcmp(self->data + one, self->data + two, one_size);
}

PyDoc_STRVAR(same_subject_doc, "same_subject(start) -> int\n\n"
                               "Return where messages with the subject of message `start` end.");

static PyObject *run_same_subject(PyObject *object, PyObject *index)
{
    PublishRun *self = (PublishRun *)object;
    Py_ssize_t at = index_in(self, index);
    if (at < 0)
        return NULL;
    const Publish *first = &self->items[at], *item = first;
    while (at < self->count && same(self, item->subject, item->subject_size, first->subject, first->subject_size))
        at++, item++;
    return PyLong_FromSsize_t(at);
}

PyDoc_STRVAR(same_route_doc, "same_route(start, size, longer) -> int\n\n"
                             "Return where messages end that share `size` bytes of the subject of message `start`. They\n"
                             "have one more token, or with `longer` any number of tokens that are not empty.");

static PyObject *run_same_route(PyObject *object, PyObject *args)
{
    PublishRun *self = (PublishRun *)object;
    PyObject *index;
    Py_ssize_t size, at;
    int longer;
    if (!PyArg_ParseTuple(args, "Onp", &index, &size, &longer) || (at = index_in(self, index)) < 0)
        return NULL;
    const Publish *first = &self->items[at];
    if (size < 0)
        return PyErr_Format(PyExc_ValueError, "%zd bytes of a subject", size);
    for (; at < self->count; at++) {
        const Publish *item = &self->items[at];
        const char *subject = self->data + item->subject, *end = subject + item->subject_size;
        if ((Py_ssize_t)item->subject_size <= size || memcmp(subject, self->data + first->subject, (size_t)size))
            break;
        const char *dot = memchr(subject + size, '.', (size_t)(end - subject - size));
        if (dot != NULL && !longer)
            break;
        const char *byte = subject;
        while (dot != NULL && byte + 1 < end && !(byte[0] == '.' && byte[1] == '.'))
            byte++;
        if (dot != NULL && (byte + 1 < end || end[-1] == '.'))
            break;
    }
    return PyLong_FromSsize_t(at);
}

PyDoc_STRVAR(run_messages_doc, "messages(sid_field, room) -> (frames, body_bytes, count)\n\n"
                               "Return the messages as MSG, up to the one that takes more than `room` bytes together.");

static PyObject *run_messages(PyObject *object, PyObject *args)
{
    PublishRun *self = (PublishRun *)object;
    Py_ssize_t sid_size, room, body = 0, at = 0;
    const char *sid;
    Buffer out = {0};
    if (!PyArg_ParseTuple(args, "y#n", &sid, &sid_size, &room))
        return NULL;
    while (at < self->count) {
        const Publish *item = &self->items[at++];
        const Piece part[4] = {{self->data + item->subject, item->subject_size},
                               {self->data + item->reply, item->reply_size},
                               {"", 0},
                               {self->data + item->payload, item->payload_size}};
        if (put_message(&out, part, sid, (size_t)sid_size) < 0)
            return NULL;
        body += item->payload_size;
        if ((Py_ssize_t)out.size > room)
            break;
    }
    PyObject *frames = take_buffer(&out);
    return frames == NULL ? NULL : Py_BuildValue("Nnn", frames, body, at);
}

PyDoc_STRVAR(run_frames_doc, "frames(salt, synced_seq, first_seq, ts_ns, offset) -> (frames, sizes, offsets, ts_ns)\n\n"
                             "Return the messages as frames of the log, all of one time.");

static PyObject *run_frames(PyObject *object, PyObject *args)
{
    PublishRun *self = (PublishRun *)object;
    unsigned long salt;
    unsigned long long synced, first, ts_ns, offset;
    if (!PyArg_ParseTuple(args, "kKKKK", &salt, &synced, &first, &ts_ns, &offset))
        return NULL;
    Log log = {(uint32_t)salt, synced};
    Frames frames = {.end = offset};
    for (Py_ssize_t at = 0; at < self->count; at++) {
        const Publish *item = &self->items[at];
        const Piece part[4] = {{self->data + item->subject, item->subject_size},
                               {"", 0},
                               {self->data + item->payload - item->header_size, item->header_size},
                               {self->data + item->payload, item->payload_size}};
        if (put_frame_of(&frames, part, first + (uint64_t)at, ts_ns, &log) < 0) {
            free_frames(&frames);
            return NULL;
        }
    }
    return take_frames(&frames, ts_ns);
}

/* The bytes of an ack's subject before its five numbers, $JS.ACK.STREAM.CONSUMER; 0 for any other subject. */
static Py_ssize_t ack_prefix(const char *subject, Py_ssize_t size)
{
    Py_ssize_t dots = 0, fourth = 0, digits = 0;
    if (size < 8 || memcmp(subject, "$JS.ACK.", 8))
        return 0;
    for (Py_ssize_t at = 0; at < size; at++) {
        if (subject[at] == '.') {
            if (++dots == 4)
                fourth = at;
            else if (dots > 4 && !digits)
                return 0;
            digits = 0;
        } else if (dots >= 4 && (subject[at] < '0' || subject[at] > '9' || ++digits > MAX_SEQ_DIGITS))
            return 0;
    }
    return dots == 8 && digits ? fourth : 0;
}

PyDoc_STRVAR(acked_doc, "acked() -> [seq, ...]\n\nReturn the stream sequences that a run of acks names.");

static PyObject *run_acked(PyObject *object, PyObject *unused)
{
    PublishRun *self = (PublishRun *)object;
    PyObject *list = PyList_New(self->count);
    (void)unused;
    for (Py_ssize_t at = 0; list != NULL && at < self->count; at++) {
        const Publish *item = &self->items[at];
        const char *subject = self->data + item->subject, *end = subject + item->subject_size;
        const char *digit = subject + ack_prefix(subject, item->subject_size) + 1;
        uint64_t seq = 0;
        while (digit < end && *digit != '.')
            digit++;
        for (digit++; digit < end && *digit != '.'; digit++)
            seq = seq * 10 + (uint64_t)(*digit - '0');
        PyObject *number = PyLong_FromUnsignedLongLong(seq);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, at, number);
    }
    return list;
}

static PyMethodDef run_methods[] = {
    {"ops", run_ops, METH_NOARGS, ops_doc},
    {"subjects", run_subjects, METH_NOARGS, subjects_doc},
    {"headers", run_headers, METH_NOARGS, headers_doc},
    {"payloads", run_payloads, METH_NOARGS, payloads_doc},
    {"entries", run_entries, METH_O, entries_doc},
    {"part", run_part, METH_VARARGS, part_doc},
    {"subject", run_subject, METH_O, subject_doc},
    {"reply", run_reply, METH_O, reply_doc},
    {"same_subject", run_same_subject, METH_O, same_subject_doc},
    {"same_route", run_same_route, METH_VARARGS, same_route_doc},
    {"messages", run_messages, METH_VARARGS, run_messages_doc},
    {"frames", run_frames, METH_VARARGS, run_frames_doc},
    {"acked", run_acked, METH_NOARGS, acked_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef run_members[] = {
    {"bytes", T_PYSSIZET, offsetof(PublishRun, bytes), READONLY, "Bytes of headers and payloads."},
    {"longest", T_PYSSIZET, offsetof(PublishRun, longest), READONLY, "Bytes of the longest header and payload."},
    {"has_replies", T_BOOL, offsetof(PublishRun, has_replies), READONLY, "Whether a message has a reply subject."},
    {"has_headers", T_BOOL, offsetof(PublishRun, has_headers), READONLY, "Whether the messages have headers."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot run_slots[] = {
    {Py_tp_dealloc, run_free},
    {Py_tp_methods, run_methods},
    {Py_tp_members, run_members},
    {Py_sq_length, run_length},
    {Py_tp_doc, "Neighboring messages of one kind, as they lie in the chunk that they came in."},
    {0, NULL},
};

static PyType_Spec run_specification = {
    .name = "natsctl.native._native.PublishRun",
    .basicsize = sizeof(PublishRun),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = run_slots,
};

typedef struct {
    const char *data, *end;
    Py_ssize_t max_line, max_payload;
    PyObject *chunk, *ops, *subject;
    int runs;
    Publish *items; /* the messages read last, which may become a run */
    Py_ssize_t count, room;
} Reading;

static int append_publish(Reading *reading, Word subject, Word reply, const char *body, Py_ssize_t header_size,
                          Py_ssize_t size)
{
    PyObject *members[4] = {
        same_or_new(reading->subject, subject),
        bytes_at(reply.at, reply.size),
        bytes_at(body, header_size),
        bytes_at(body + header_size, size - header_size),
    };
    reading->subject = members[0]; /* lives in its operation */
    return append_op(reading->ops, PUB, members, 4);
}

/* Appends the messages read last to the operations: as a run where they are some, else one by one. */
static int end_run(Reading *reading)
{
    Py_ssize_t count = reading->count;
    reading->count = 0;
    if (count >= RUN_MIN) {
        PyObject *members[1] = {new_run(reading->chunk, reading->items, count)};
        return append_op(reading->ops, RUN, members, 1);
    }
    for (const Publish *item = reading->items; item < reading->items + count; item++) {
        Word subject = {reading->data + item->subject, item->subject_size};
        Word reply = {reading->data + item->reply, item->reply_size};
        if (append_publish(reading, subject, reply, reading->data + item->payload - item->header_size,
                           item->header_size, (Py_ssize_t)item->header_size + item->payload_size) < 0)
            return -1;
    }
    return 0;
}

/* Keeps a message for a run; -1 with MemoryError. */
static int keep_publish(Reading *reading, Word subject, Word reply, const char *body, Py_ssize_t header_size,
                        Py_ssize_t size)
{
    if (reading->count == reading->room) {
        Py_ssize_t room = reading->room ? 2 * reading->room : 256;
        Publish *items = PyMem_Realloc(reading->items, (size_t)room * sizeof *items);
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        reading->items = items;
        reading->room = room;
    }
    Publish *item = &reading->items[reading->count++];
    item->subject = (uint32_t)(subject.at - reading->data);
    item->subject_size = (uint32_t)subject.size;
    item->reply = reply.size ? (uint32_t)(reply.at - reading->data) : 0;
    item->reply_size = (uint32_t)reply.size;
    item->header_size = (uint32_t)header_size;
    item->payload = (uint32_t)(body + header_size - reading->data);
    item->payload_size = (uint32_t)(size - header_size);
    return 0;
}

/* Whether a message is an ack of the same consumer as those that were kept, without an answer. */
static int is_plain_ack(const Reading *reading, Word subject, Word reply, Word payload)
{
    Py_ssize_t prefix = ack_prefix(subject.at, subject.size);
    if (!prefix || reply.size || (payload.size && (payload.size != 4 || memcmp(payload.at, "+ACK", 4))))
        return 0;
    if (!reading->count)
        return 1;
    const Publish *first = reading->items;
    const char *before = reading->data + first->subject;
    return ack_prefix(before, first->subject_size) == prefix && !memcmp(before, subject.at, (size_t)prefix);
}

static int is_control(const char *reply, Py_ssize_t size)
{
    return size >= 4 && !memcmp(reply + size - 4, ".$FI", 4);
}

/* Whether a message may be in a run with those that were kept: see natsctl/wire/publish_run.py. */
static int fits_in_run(const Reading *reading, Word subject, Word reply, Py_ssize_t header_size, Word payload)
{
    static const char *const reserved[] = {"_R_", "_GR", "$JS", "$GR"}; /* RESERVED_HEADS */
    const Publish *first = reading->count ? reading->items : NULL;
    if (!reading->runs)
        return 0;
    if (subject.at[0] == '$')
        return !header_size && is_plain_ack(reading, subject, reply, payload);
    if (subject.at[0] == '_' || (first && reading->data[first->subject] == '$'))
        return 0;
    for (size_t at = 0; reply.size >= 3 && at < sizeof reserved / sizeof *reserved; at++)
        if (!memcmp(reply.at, reserved[at], 3))
            return 0;
    int headed = header_size > 0, control = is_control(reply.at, reply.size);
    if (headed && control)
        return 0;
    return first == NULL || (headed == (first->header_size > 0) &&
                             control == is_control(reading->data + first->reply, first->reply_size));
}

/* Reads a PUB or HPUB with its body, and returns where it ends; NULL where it is not complete or not plain. */
static const char *read_publish(Reading *reading, const Word *words, int count, const char *body)
{
    int headed = words[0].size == 4, fixed = headed ? 4 : 3, failed;
    if (count != fixed && count != fixed + 1)
        return NULL;
    Py_ssize_t size = number_of(words[count - 1]), header_size = headed ? number_of(words[count - 2]) : 0;
    if (size < 0 || header_size < headed || header_size > size || size > reading->max_payload)
        return NULL;
    if (reading->end - body < size + 2 || body[size] != '\r' || body[size + 1] != '\n')
        return NULL;
    Word none = {"", 0}, reply = count > fixed ? words[2] : none, payload = {body + header_size, size - header_size};
    if (!fits_in_run(reading, words[1], reply, header_size, payload) && end_run(reading) < 0)
        return NULL; /* it may begin the next run */
    if (fits_in_run(reading, words[1], reply, header_size, payload))
        failed = keep_publish(reading, words[1], reply, body, header_size, size);
    else
        failed = end_run(reading) < 0 || append_publish(reading, words[1], reply, body, header_size, size) < 0;
    return failed ? NULL : body + size + 2;
}

static int read_subscribe(Reading *reading, const Word *words, int count)
{
    if (end_run(reading) < 0)
        return -1;
    PyObject *members[3] = {
        bytes_at(words[1].at, words[1].size),
        count == 4 ? bytes_at(words[2].at, words[2].size) : Py_NewRef(no_bytes),
        bytes_at(words[count - 1].at, words[count - 1].size),
    };
    return append_op(reading->ops, SUB, members, 3);
}

static int read_unsubscribe(Reading *reading, const Word *words)
{
    if (end_run(reading) < 0)
        return -1;
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

PyDoc_STRVAR(read_doc, "read_ops(chunk, max_line, max_payload, ops, runs) -> int\n\n"
                       "Append the leading plain operations of a chunk to `ops`, and return how many bytes they take.\n"
                       "With `runs`, neighboring messages of one kind become one operation (RUN, PublishRun).");

static PyObject *read_ops(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t size;
    (void)module;
    if (takes("read_ops", count, 5) < 0)
        return NULL;
    Reading reading = {.data = bytes_of(args[0], &size), .chunk = args[0], .ops = args[3]};
    if (reading.data == NULL)
        return NULL;
    reading.end = reading.data + size;
    reading.max_line = index_of(args[1]);
    reading.max_payload = index_of(args[2]);
    reading.runs = truth_of(args[4]) && size <= INT32_MAX;
    if (PyErr_Occurred())
        return NULL;
    const char *at = reading.data, *next;
    while (at < reading.end && (next = read_op(&reading, at)) != NULL)
        at = next;
    int failed = PyErr_Occurred() || end_run(&reading) < 0;
    PyMem_Free(reading.items);
    return failed ? NULL : PyLong_FromSsize_t(at - reading.data);
}

int reading_init(PyObject *module)
{
    for (long kind = PUB; kind <= RUN; kind++)
        if ((kinds[kind] = PyLong_FromLong(kind)) == NULL)
            return -1;
    no_bytes = PyBytes_FromStringAndSize("", 0);
    zero = PyLong_FromLong(0);
    run_type = PyType_FromModuleAndSpec(module, &run_specification, NULL);
    if (no_bytes == NULL || zero == NULL || run_type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "PublishRun", run_type);
}

/* Reads reply and sequence of message `offset` of an entry, and returns the entry's messages; -1 with an exception. */
static Py_ssize_t read_stored(PyObject *entry, Py_ssize_t offset, Piece *reply, uint64_t *seq)
{
    if (!PyTuple_Check(entry) || PyTuple_Size(entry) != 3) {
        PyErr_SetString(PyExc_TypeError, "an entry is (seq, subject, reply) or (last_seq, run, first_seq)");
        return -1;
    }
    PyObject *object = PyTuple_GetItem(entry, 1);
    Py_ssize_t count = 1, size;
    if (Py_TYPE(object) == (PyTypeObject *)run_type)
        count = ((PublishRun *)object)->count;
    if (offset < 0 || offset >= count) {
        PyErr_Format(PyExc_IndexError, "message %zd of %zd", offset, count);
        return -1;
    }
    if (Py_TYPE(object) == (PyTypeObject *)run_type) {
        const PublishRun *run = (PublishRun *)object;
        reply->at = run->data + run->items[offset].reply;
        reply->size = run->items[offset].reply_size;
        *seq = PyLong_AsUnsignedLongLong(PyTuple_GetItem(entry, 2)) + (uint64_t)offset;
    } else {
        if ((reply->at = bytes_of(PyTuple_GetItem(entry, 2), &size)) == NULL)
            return -1;
        reply->size = (size_t)size;
        *seq = PyLong_AsUnsignedLongLong(PyTuple_GetItem(entry, 0));
    }
    return PyErr_Occurred() ? -1 : count;
}

/* Acks in a row: `first` is the reply of the first, `shared` the inbox of replies that go along with it. */
typedef struct {
    Buffer out;
    Piece first;
    const char *shared;
    Py_ssize_t shared_size, bodies, sent;
} Acks;

/* Whether the ack of a reply goes along with the earlier ones. */
static int goes_along(const Acks *acks, const Piece *reply)
{
    if (!acks->first.size)
        return 1;
    if (acks->first.size == reply->size && !memcmp(acks->first.at, reply->at, reply->size))
        return 1;
    return acks->shared_size && is_in_inbox(reply->at, reply->size, acks->shared, (size_t)acks->shared_size);
}

/* Adds acks from message `offset` of entry `index` on, and moves both; returns 1 at the end of the messages, 0 at a
 * reply that does not go along, and -1 with an exception. */
static int put_acks(Acks *acks, PyObject *messages, const Ack *ack, Py_ssize_t *index, Py_ssize_t *offset)
{
    PyObject *stored = list_of(messages);
    if (stored == NULL)
        return -1;
    int ended = 1;
    while (*index < PyList_Size(stored)) {
        Piece reply;
        uint64_t seq;
        PyObject *entry = PyList_GetItem(stored, *index);
        Py_ssize_t count = entry == NULL ? -1 : read_stored(entry, *offset, &reply, &seq);
        if (count < 0) {
            ended = -1;
            break;
        }
        if (reply.size) {
            if (!goes_along(acks, &reply)) {
                ended = 0;
                break;
            }
            size_t body = put_ack(&acks->out, reply.at, reply.size, ack, seq);
            if (!body) {
                ended = -1;
                break;
            }
            acks->first = acks->first.size ? acks->first : reply;
            acks->bodies += (Py_ssize_t)body;
            acks->sent++;
        }
        if (++*offset >= count) {
            ++*index;
            *offset = 0;
        }
    }
    Py_DECREF(stored);
    return ended;
}

static int put_acks_of(Acks *acks, PyObject *commit, PyObject *sid, Py_ssize_t *index, Py_ssize_t *offset)
{
    Ack ack;
    if (!PyTuple_Check(commit) || PyTuple_Size(commit) != 2) {
        PyErr_SetString(PyExc_TypeError, "a commit is (stored messages, opening)");
        return -1;
    }
    if (read_ack(&ack, PyTuple_GetItem(commit, 1), sid) < 0)
        return -1;
    return put_acks(acks, PyTuple_GetItem(commit, 0), &ack, index, offset);
}

PyDoc_STRVAR(ack_frames_doc,
             "ack_frames(commits, number, index, offset, shared, sid_field)\n"
             "    -> (frames, body_bytes, count, number, index, offset)\n\n"
             "Return as MSG the acks of commits, each (stored messages, opening), from message `offset` of entry `index`\n"
             "of commit `number` on, up to a reply that is neither the first one nor `shared` and one more token. The\n"
             "place of that message follows.");

static PyObject *ack_frames(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Acks acks = {.first = {0}};
    (void)module;
    if (takes("ack_frames", count, 6) < 0 || (acks.shared = bytes_of(args[4], &acks.shared_size)) == NULL)
        return NULL;
    Py_ssize_t number = index_of(args[1]), index = index_of(args[2]), offset = index_of(args[3]);
    PyObject *commits = PyErr_Occurred() ? NULL : list_of(args[0]);
    if (commits == NULL)
        return NULL;
    for (int ended = 1; number < PyList_Size(commits) && ended > 0;) {
        PyObject *commit = PyList_GetItem(commits, number);
        if (commit == NULL)
            break;
        Py_INCREF(commit); /* a sequence of messages may have code of its own */
        ended = put_acks_of(&acks, commit, args[5], &index, &offset);
        Py_DECREF(commit);
        if (ended > 0) {
            number++;
            index = 0;
        }
    }
    Py_DECREF(commits);
    PyObject *frames = take_buffer(&acks.out);
    if (PyErr_Occurred())
        Py_CLEAR(frames);
    return frames == NULL ? NULL : Py_BuildValue("Nnnnnn", frames, acks.bodies, acks.sent, number, index, offset);
}

PyMethodDef reading_methods[] = {
    {"ack_frames", (PyCFunction)(void (*)(void))ack_frames, METH_FASTCALL, ack_frames_doc},
    {"read_ops", (PyCFunction)(void (*)(void))read_ops, METH_FASTCALL, read_doc},
    {NULL, NULL, 0, NULL},
};
