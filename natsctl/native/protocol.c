/* What leaves for clients: see natsctl/broker/subscription.py and account.py. Reading is in publishes.c. */

#include "native.h"

/* Adds an ack as MSG, and returns the bytes of its body; 0 with an exception. */
size_t put_ack(Buffer *out, const char *reply, size_t reply_size, const Ack *ack, uint64_t seq)
{
    char number[20];
    size_t digits = (size_t)(put_number(number, seq) - number), body = ack->opening_size + digits + 1;
    size_t room = 4 + reply_size + ack->sid_size + 20 + 2 + body + 2;
    char *begin = grow(out, room), *to = begin;
    if (to == NULL)
        return 0;
    to = put_bytes(to, "MSG ", 4);
    to = put_bytes(to, reply, reply_size);
    to = put_bytes(to, ack->sid, ack->sid_size);
    to = put_number(to, body);
    to = put_bytes(to, "\r\n", 2);
    to = put_bytes(to, ack->opening, ack->opening_size);
    to = put_bytes(to, number, digits);
    to = put_bytes(to, "}\r\n", 3);
    out->size -= room - (size_t)(to - begin);
    return body;
}

int read_ack(Ack *ack, PyObject *opening, PyObject *sid)
{
    Py_ssize_t opening_size, sid_size;
    ack->opening = bytes_of(opening, &opening_size);
    ack->sid = ack->opening ? bytes_of(sid, &sid_size) : NULL;
    if (ack->sid == NULL)
        return -1;
    ack->opening_size = (size_t)opening_size;
    ack->sid_size = (size_t)sid_size;
    return 0;
}

/* A message as its client is sent it: MSG, or HMSG where it has a header; returns -1 with MemoryError. */
int put_message(Buffer *out, const Piece part[4], const char *sid, size_t sid_size)
{
    const Piece *subject = &part[0], *reply = &part[1], *header = &part[2], *payload = &part[3];
    size_t room = 5 + subject->size + sid_size + reply->size + 1 + 20 + 1 + 20 + 2 + header->size + payload->size + 2;
    char *begin = grow(out, room), *to = begin;
    if (to == NULL)
        return -1;
    to = header->size ? put_bytes(to, "HMSG ", 5) : put_bytes(to, "MSG ", 4);
    to = put_bytes(to, subject->at, subject->size);
    to = put_bytes(to, sid, sid_size);
    if (reply->size) {
        to = put_bytes(to, reply->at, reply->size);
        *to++ = ' ';
    }
    if (header->size) {
        to = put_number(to, header->size);
        *to++ = ' ';
    }
    to = put_number(to, header->size + payload->size);
    to = put_bytes(to, "\r\n", 2);
    to = put_bytes(to, header->at, header->size);
    to = put_bytes(to, payload->at, payload->size);
    to = put_bytes(to, "\r\n", 2);
    out->size -= room - (size_t)(to - begin);
    return 0;
}

/* Reads subject, reply, header and payload from `first` on of a tuple, the header as nothing where it is not wanted. */
static int read_message(PyObject *message, Py_ssize_t first, int headers, Piece part[4])
{
    if (!PyTuple_Check(message)) {
        PyErr_SetString(PyExc_TypeError, "a message is a tuple");
        return -1;
    }
    for (Py_ssize_t at = 0; at < 4; at++) {
        Py_ssize_t size;
        if ((part[at].at = bytes_of(PyTuple_GetItem(message, first + at), &size)) == NULL)
            return -1;
        part[at].size = (size_t)size;
    }
    if (!headers)
        part[2].size = 0;
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
    Py_ssize_t first = index_of(args[1]), room = index_of(args[4]);
    int headers = truth_of(args[3]);
    PyObject *messages = sid == NULL || PyErr_Occurred() ? NULL : list_of(args[0]);
    if (messages == NULL)
        return NULL;
    for (Py_ssize_t length = PyList_Size(messages); at < length; at++) {
        Piece part[4];
        if (read_message(PyList_GetItem(messages, at), first, headers, part) < 0 ||
            put_message(&out, part, sid, (size_t)sid_size) < 0) {
            Py_DECREF(messages);
            PyMem_Free(out.data);
            return NULL;
        }
        body += (Py_ssize_t)(part[2].size + part[3].size);
        if ((Py_ssize_t)out.size > room) {
            at++;
            break;
        }
    }
    Py_DECREF(messages);
    PyObject *frames = take_buffer(&out);
    return frames == NULL ? NULL : Py_BuildValue("Nnn", frames, body, at);
}

/* One delivery: (subject, ack subject, header, payload) of a message (seq, ts_ns, subject, header, payload). */
static PyObject *new_delivery(PyObject *message, const Piece *prefix, uint64_t cseq, int64_t left)
{
    if (!PyTuple_Check(message) || PyTuple_Size(message) != 5) {
        PyErr_SetString(PyExc_TypeError, "a message is (seq, ts_ns, subject, header, payload)");
        return NULL;
    }
    uint64_t seq = PyLong_AsUnsignedLongLong(PyTuple_GetItem(message, 0));
    uint64_t ts_ns = PyLong_AsUnsignedLongLong(PyTuple_GetItem(message, 1));
    if (PyErr_Occurred())
        return NULL;
    char stack[512], *text = stack, *at;
    if (prefix->size + 100 > sizeof stack && (text = PyMem_Malloc(prefix->size + 100)) == NULL)
        return PyErr_NoMemory();
    at = put_bytes(text, prefix->at, prefix->size);
    at = put_bytes(at, "1.", 2);
    at = put_number(at, seq);
    *at++ = '.';
    at = put_number(at, cseq);
    *at++ = '.';
    at = put_number(at, ts_ns);
    *at++ = '.';
    if (left < 0)
        *at++ = '-';
    at = put_number(at, left < 0 ? 0 - (uint64_t)left : (uint64_t)left);
    PyObject *reply = PyBytes_FromStringAndSize(text, at - text);
    if (text != stack)
        PyMem_Free(text);
    if (reply == NULL)
        return NULL;
    return Py_BuildValue("ONOO", PyTuple_GetItem(message, 2), reply, PyTuple_GetItem(message, 3), PyTuple_GetItem(message, 4));
}

PyDoc_STRVAR(deliveries_doc, "first_deliveries(messages, ack_prefix, cseq, left) -> [(subject, reply, header, payload), ...]\n\n"
                             "Return first deliveries, whose ack subjects count on from `cseq` and down from `left`.");

static PyObject *first_deliveries(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t size;
    (void)module;
    if (takes("first_deliveries", count, 4) < 0)
        return NULL;
    Piece prefix = {bytes_of(args[1], &size), 0};
    uint64_t cseq = unsigned_of(args[2]);
    int64_t left = signed_of(args[3]);
    PyObject *messages = PyErr_Occurred() ? NULL : list_of(args[0]);
    if (messages == NULL)
        return NULL;
    prefix.size = (size_t)size;
    Py_ssize_t length = PyList_Size(messages);
    PyObject *list = PyList_New(length);
    for (Py_ssize_t at = 0; list != NULL && at < length; at++) {
        PyObject *message = Py_XNewRef(PyList_GetItem(messages, at)); /* new objects may start a collection */
        PyObject *one = message == NULL ? NULL
                                        : new_delivery(message, &prefix, cseq + (uint64_t)at + 1,
                                                       (int64_t)((uint64_t)left - (uint64_t)at - 1));
        Py_XDECREF(message);
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, at, one);
    }
    Py_DECREF(messages);
    return list;
}

PyDoc_STRVAR(lines_doc, "count_lines(data) -> int\n\nReturn how many line feeds there are.");

static PyObject *count_lines(PyObject *module, PyObject *data)
{
    enum { BLOCK = 64 };
    Py_ssize_t size;
    const char *at = bytes_of(data, &size);
    size_t count = 0;
    (void)module;
    if (at == NULL)
        return NULL;
    for (; size >= BLOCK; size -= BLOCK, at += BLOCK) {
        uint8_t found = 0; /* of one byte, so that compilers compare many at once */
        for (int byte = 0; byte < BLOCK; byte++)
            found += at[byte] == '\n';
        count += found;
    }
    while (size--)
        count += *at++ == '\n';
    return PyLong_FromSize_t(count);
}

PyMethodDef protocol_methods[] = {
    {"count_lines", count_lines, METH_O, lines_doc},
    {"message_frames", (PyCFunction)(void (*)(void))message_frames, METH_FASTCALL, messages_doc},
    {"first_deliveries", (PyCFunction)(void (*)(void))first_deliveries, METH_FASTCALL, deliveries_doc},
    {NULL, NULL, 0, NULL},
};
