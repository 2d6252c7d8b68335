/* What the parts of the native module share. The stable ABI of Python 3.11 serves every later release. */

#ifndef NATSCTL_NATIVE_H
#define NATSCTL_NATIVE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

extern PyMethodDef archive_methods[];
extern PyMethodDef column_methods[];
extern PyMethodDef frame_methods[];
extern PyMethodDef message_methods[];
extern PyMethodDef protocol_methods[];
extern PyMethodDef reading_methods[];

int archive_init(void);
int columns_init(PyObject *module);
int frames_init(void);
int committer_init(PyObject *module);
int reading_init(PyObject *module);

uint32_t checksum(uint32_t start, const uint8_t *data, size_t size);

static inline uint32_t load_32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t load_64(const uint8_t *at)
{
    return load_32(at) | (uint64_t)load_32(at + 4) << 32;
}

/* The bytes of an object that must be `bytes`; NULL with TypeError for any other, and where the object is NULL. */
static inline const char *bytes_of(PyObject *object, Py_ssize_t *size)
{
    char *data;
    if (object == NULL || PyBytes_AsStringAndSize(object, &data, size) < 0)
        return NULL;
    return data;
}

/* Numbers and truth of arguments. They may call Python, which must not happen with an exception set: then 0. */
static inline uint64_t unsigned_of(PyObject *object)
{
    return PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(object);
}

static inline int64_t signed_of(PyObject *object)
{
    return PyErr_Occurred() ? 0 : PyLong_AsLongLong(object);
}

static inline Py_ssize_t index_of(PyObject *object)
{
    return PyErr_Occurred() ? 0 : PyLong_AsSsize_t(object);
}

static inline int truth_of(PyObject *object)
{
    return PyErr_Occurred() ? 0 : PyObject_IsTrue(object);
}

/* Raises TypeError and returns -1 unless `count` arguments were given. */
static inline int takes(const char *name, Py_ssize_t given, Py_ssize_t count)
{
    if (given == count)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments (%zd given)", name, count, given);
    return -1;
}

/* A new reference to a list with the members of any sequence. */
static inline PyObject *list_of(PyObject *sequence)
{
    return PyList_Check(sequence) ? Py_NewRef(sequence) : PySequence_List(sequence);
}

/* A growing run of bytes. After a failed `grow` it holds nothing, and MemoryError is set. */
typedef struct {
    char *data;
    size_t size, room;
} Buffer;

static inline char *grow(Buffer *buffer, size_t more)
{
    if (buffer->size + more > buffer->room) {
        size_t room = buffer->room ? buffer->room * 2 : 4096;
        while (room < buffer->size + more)
            room *= 2;
        char *data = PyMem_Realloc(buffer->data, room);
        if (data == NULL) {
            PyMem_Free(buffer->data);
            memset(buffer, 0, sizeof *buffer);
            PyErr_NoMemory();
            return NULL;
        }
        buffer->data = data;
        buffer->room = room;
    }
    char *end = buffer->data + buffer->size;
    buffer->size += more;
    return end;
}

static inline int put_32(Buffer *column, uint32_t value)
{
    char *at = grow(column, sizeof value);
    if (at != NULL)
        memcpy(at, &value, sizeof value);
    return at == NULL ? -1 : 0;
}

/* The bytes gathered so far as an object; the buffer is empty afterwards. */
static inline PyObject *take_buffer(Buffer *buffer)
{
    PyObject *result = PyBytes_FromStringAndSize(buffer->data, (Py_ssize_t)buffer->size);
    PyMem_Free(buffer->data);
    memset(buffer, 0, sizeof *buffer);
    return result;
}

/* Writes a number in decimal and returns the end; 20 bytes are enough. */
static inline char *put_number(char *at, uint64_t number)
{
    char digits[20];
    int count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    while (count)
        *at++ = digits[--count];
    return at;
}

static inline char *put_bytes(char *at, const char *data, size_t size)
{
    memcpy(at, data, size);
    return at + size;
}

/* Part of a message that lies elsewhere. */
typedef struct {
    const char *at;
    size_t size;
} Piece;

enum { PUB = 0 }; /* natsctl/wire/ops.py */

/* protocol.c: what leaves for clients */
typedef struct {
    const char *opening, *sid;
    size_t opening_size, sid_size;
} Ack;

int read_ack(Ack *ack, PyObject *opening, PyObject *sid);
size_t put_ack(Buffer *out, const char *reply, size_t reply_size, const Ack *ack, uint64_t seq);
int put_message(Buffer *out, const Piece part[4], const char *sid, size_t sid_size);

/* Whether a reply subject is `shared` and one more token. */
static inline int is_in_inbox(const char *reply, size_t reply_size, const char *shared, size_t size)
{
    return reply_size > size && !memcmp(reply, shared, size) && !memchr(reply + size, '.', reply_size - size);
}

/* frames.c: the head of a frame */
#define MAGIC 0x9E4C6A5Bu
#define MESSAGE 1
#define HAS_HEADER 1
#define HEAD_BYTES 40
#define OVER_SIZE 10 /* a frame is this much longer than the message's accounted size */

/* frames.c: frames of the log, and for each its accounted size and its offset, as columns of 32-bit numbers */
typedef struct {
    uint32_t salt;
    uint64_t synced_seq;
} Log;

typedef struct {
    Buffer frames, sizes, offsets;
    uint64_t end;
} Frames;

int put_frame_of(Frames *frames, const Piece part[4], uint64_t seq, uint64_t ts_ns, const Log *log);
PyObject *take_frames(Frames *frames, uint64_t last_ts_ns);
void free_frames(Frames *frames);

/* frames.c: the bytes gathered so far as an array */
PyObject *take_column(Buffer *buffer, char typecode);

#endif
