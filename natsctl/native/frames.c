/* Frames of the log: see natsctl/store/frame.py, which describes them, and file_log.py, which writes them. */

#include "native.h"

#define TIMED 2
#define UNCHECKED_BYTES 12 /* magic, length and checksum, which the checksum does not cover */

/* zlib's CRC-32, eight bytes at a time; where the processor multiplies without carries, 64. */
static uint32_t tables[8][256];

static PyObject *array_type;

int frames_init(void)
{
    PyObject *array = PyImport_ImportModule("array");
    array_type = array ? PyObject_GetAttrString(array, "array") : NULL;
    Py_XDECREF(array);
    if (array_type == NULL)
        return -1;
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++)
            tables[table][byte] = tables[table - 1][byte] >> 8 ^ tables[0][tables[table - 1][byte] & 0xFF];
    return 0;
}

static uint32_t update_by_table(uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = load_32(data) ^ crc, high = load_32(data + 4);
        crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24] ^
              tables[3][high & 0xFF] ^ tables[2][high >> 8 & 0xFF] ^ tables[1][high >> 16 & 0xFF] ^ tables[0][high >> 24];
    }
    while (size--)
        crc = crc >> 8 ^ tables[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define FOLDS __attribute__((target("pclmul,sse4.1")))
#define CAN_FOLD (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))

FOLDS static inline __m128i folded(__m128i low, __m128i by, __m128i next)
{
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(low, by, 0x00), _mm_clmulepi64_si128(low, by, 0x11)), next);
}

FOLDS static inline __m128i load_128(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}

/* At least 64 bytes, a multiple of 16. Source: Gopal and others, Fast CRC Computation for Generic Polynomials Using
   PCLMULQDQ Instruction (Intel, 2009), whose constants for this polynomial these are. */
FOLDS static uint32_t update_by_folding(uint32_t crc, const uint8_t *data, size_t size)
{
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0163cd6124), divide = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_halves = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i lane[4];
    for (int at = 0; at < 4; at++)
        lane[at] = load_128(data + 16 * at);
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)crc));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int at = 0; at < 4; at++)
            lane[at] = folded(lane[at], by_64, load_128(data + 16 * at));
    __m128i sum = lane[0];
    for (int at = 1; at < 4; at++)
        sum = folded(sum, by_16, lane[at]);
    for (; size >= 16; data += 16, size -= 16)
        sum = folded(sum, by_16, load_128(data));
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_16, 0x10));
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, low_halves), by_8, 0x00));
    __m128i quotient = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, low_halves), divide, 0x10), low_halves);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, _mm_clmulepi64_si128(quotient, divide, 0x00)), 1);
}
#else
#define CAN_FOLD 0
#define update_by_folding update_by_table
#endif

uint32_t checksum(uint32_t start, const uint8_t *data, size_t size)
{
    uint32_t crc = ~start;
    if (size >= 64 && CAN_FOLD) {
        size_t most = size & ~(size_t)15;
        crc = update_by_folding(crc, data, most);
        data += most;
        size -= most;
    }
    return ~update_by_table(crc, data, size);
}

static inline char *store(char *at, uint64_t value, int bytes)
{
    while (bytes--) {
        *at++ = (char)value;
        value >>= 8;
    }
    return at;
}

static uint32_t frame_sum(const char *frame, size_t length, uint32_t salt)
{
    return checksum(salt + (uint32_t)length, (const uint8_t *)frame + UNCHECKED_BYTES, length - UNCHECKED_BYTES);
}

/* Adds one frame to `out` and returns its length; 0 with an exception set. */
static uint32_t put_frame(Buffer *out, const Piece part[4], unsigned flags, uint64_t seq, uint64_t ts_ns, const Log *log)
{
    const Piece *subject = &part[0], *header = &part[2], *payload = &part[3];
    uint64_t size = (uint64_t)HEAD_BYTES + subject->size + payload->size;
    if (header->size) {
        size += 4 + (uint64_t)header->size;
        flags |= HAS_HEADER;
    }
    if (size > UINT32_MAX || subject->size > UINT16_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a message is too long for a frame");
        return 0;
    }
    char *start = grow(out, size), *at = start;
    if (start == NULL)
        return 0;
    at = store(at, MAGIC, 4);
    at = store(at, size, 4);
    at = store(at, 0, 4);
    *at++ = MESSAGE;
    *at++ = (char)flags;
    at = store(at, subject->size, 2);
    at = store(at, seq, 8);
    at = store(at, ts_ns, 8);
    at = store(at, log->synced_seq, 8);
    at = put_bytes(at, subject->at, subject->size);
    if (header->size) {
        at = store(at, header->size, 4);
        at = put_bytes(at, header->at, header->size);
    }
    put_bytes(at, payload->at, payload->size);
    store(start + 8, frame_sum(start, size, log->salt), 4);
    return (uint32_t)size;
}

static int read_log(Log *log, PyObject *salt, PyObject *synced_seq)
{
    log->salt = (uint32_t)PyLong_AsUnsignedLongMask(salt);
    log->synced_seq = PyLong_AsUnsignedLongLong(synced_seq);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_piece(Piece *piece, PyObject *object)
{
    Py_ssize_t size;
    piece->at = bytes_of(object, &size);
    piece->size = piece->at == NULL ? 0 : (size_t)size;
    return piece->at == NULL ? -1 : 0;
}

PyDoc_STRVAR(frame_doc, "frame(salt, synced_seq, seq, ts_ns, flags, subject, header, payload) -> bytes\n\n"
                        "Return the frame of one message.");

static PyObject *frame(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Log log;
    Piece part[4] = {{"", 0}};
    Buffer out = {0};
    (void)module;
    if (takes("frame", count, 8) < 0 || read_log(&log, args[0], args[1]) < 0)
        return NULL;
    uint64_t seq = PyLong_AsUnsignedLongLong(args[2]), ts_ns = PyLong_AsUnsignedLongLong(args[3]);
    unsigned flags = (unsigned)signed_of(args[4]);
    if (PyErr_Occurred() || read_piece(&part[0], args[5]) < 0 || read_piece(&part[2], args[6]) < 0 ||
        read_piece(&part[3], args[7]) < 0 || !put_frame(&out, part, flags, seq, ts_ns, &log))
        return NULL;
    return take_buffer(&out);
}

int put_frame_of(Frames *run, const Piece part[4], uint64_t seq, uint64_t ts_ns, const Log *log)
{
    uint32_t length = put_frame(&run->frames, part, 0, seq, ts_ns, log);
    if (!length)
        return -1;
    uint32_t size = length - OVER_SIZE, offset = (uint32_t)run->end;
    char *at;
    if (run->end > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a segment is too long");
        return -1;
    }
    if ((at = grow(&run->sizes, 4)) == NULL)
        return -1;
    memcpy(at, &size, 4);
    if ((at = grow(&run->offsets, 4)) == NULL)
        return -1;
    memcpy(at, &offset, 4);
    run->end += length;
    return 0;
}

void free_frames(Frames *run)
{
    PyMem_Free(run->frames.data);
    PyMem_Free(run->sizes.data);
    PyMem_Free(run->offsets.data);
}

/* A column as an array. */
PyObject *take_column(Buffer *buffer, char typecode)
{
    PyObject *bytes = take_buffer(buffer);
    PyObject *column = bytes ? PyObject_CallFunction(array_type, "CO", typecode, bytes) : NULL;
    Py_XDECREF(bytes);
    return column;
}

/* (frames, sizes, offsets, last time) */
PyObject *take_frames(Frames *run, uint64_t last_ts_ns)
{
    PyObject *frames = take_buffer(&run->frames), *sizes = take_column(&run->sizes, 'I');
    PyObject *offsets = take_column(&run->offsets, 'I'), *result = NULL;
    if (frames && sizes && offsets)
        result = Py_BuildValue("OOOK", frames, sizes, offsets, (unsigned long long)last_ts_ns);
    Py_XDECREF(frames);
    Py_XDECREF(sizes);
    Py_XDECREF(offsets);
    return result;
}

/* Reads (seq, ts_ns, subject, header, payload), which stay the tuple's. */
static int read_copy(PyObject *copy, Piece part[4], uint64_t *seq, uint64_t *ts_ns)
{
    if (!PyTuple_Check(copy) || PyTuple_Size(copy) != 5) {
        PyErr_SetString(PyExc_TypeError, "a copy is (seq, ts_ns, subject, header, payload)");
        return -1;
    }
    *seq = PyLong_AsUnsignedLongLong(PyTuple_GetItem(copy, 0));
    *ts_ns = PyLong_AsUnsignedLongLong(PyTuple_GetItem(copy, 1));
    if (PyErr_Occurred() || read_piece(&part[0], PyTuple_GetItem(copy, 2)) < 0)
        return -1;
    return read_piece(&part[2], PyTuple_GetItem(copy, 3)) < 0 ? -1 : read_piece(&part[3], PyTuple_GetItem(copy, 4));
}

PyDoc_STRVAR(copies_doc, "frame_copies(salt, synced_seq, last_ts_ns, offset, messages) -> (frames, sizes, offsets, last_ts_ns)\n\n"
                         "Return the frames of (seq, ts_ns, subject, header, payload), times below an earlier one raised to it.");

static PyObject *frame_copies(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Log log;
    Frames run = {0};
    (void)module;
    if (takes("frame_copies", count, 5) < 0 || read_log(&log, args[0], args[1]) < 0)
        return NULL;
    uint64_t last_ts_ns = PyLong_AsUnsignedLongLong(args[2]);
    run.end = PyLong_AsUnsignedLongLong(args[3]);
    PyObject *copies = PyErr_Occurred() ? NULL : list_of(args[4]);
    if (copies == NULL)
        return NULL;
    Py_ssize_t length = PyList_Size(copies);
    for (Py_ssize_t at = 0; at < length; at++) {
        Piece part[4];
        uint64_t seq, ts_ns;
        if (read_copy(PyList_GetItem(copies, at), part, &seq, &ts_ns) < 0)
            break;
        last_ts_ns = ts_ns > last_ts_ns ? ts_ns : last_ts_ns;
        if (put_frame_of(&run, part, seq, last_ts_ns, &log) < 0)
            break;
    }
    Py_DECREF(copies);
    if (PyErr_Occurred()) {
        free_frames(&run);
        return NULL;
    }
    return take_frames(&run, last_ts_ns);
}

static uint64_t load(const char *at, int bytes)
{
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | (uint8_t)at[bytes];
    return value;
}

/* A message of the type given, which is a named tuple (seq, ts_ns, subject, header, payload). */
static PyObject *new_message(PyTypeObject *type, const char *frame, size_t length)
{
    size_t subject = load(frame + 14, 2), header = 0, at = HEAD_BYTES + subject;
    if (frame[13] & HAS_HEADER && at + 4 <= length) {
        header = load(frame + at, 4);
        at += 4;
    }
    if (at + header > length) {
        PyErr_SetString(PyExc_ValueError, "a frame is shorter than what it holds");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *members[5] = {
        PyLong_FromUnsignedLongLong(load(frame + 16, 8)),
        PyLong_FromUnsignedLongLong(load(frame + 24, 8)),
        PyBytes_FromStringAndSize(frame + HEAD_BYTES, (Py_ssize_t)subject),
        PyBytes_FromStringAndSize(frame + at, (Py_ssize_t)header),
        PyBytes_FromStringAndSize(frame + at + header, (Py_ssize_t)(length - at - header)),
    };
    PyObject *message = allocate(type, 5);
    int failed = message == NULL;
    for (Py_ssize_t place = 0; place < 5; place++) {
        failed |= members[place] == NULL;
        if (message != NULL)
            PyTuple_SetItem(message, place, members[place]);
        else
            Py_XDECREF(members[place]);
    }
    if (failed)
        Py_CLEAR(message);
    return message;
}

PyDoc_STRVAR(read_frames_doc, "read_frames(blob, start, places, first, salt, type, messages) -> int\n\n"
                              "Append the messages whose frames begin at places[first:] of a file to `messages`; `start`\n"
                              "is the place of `blob`; None examines the frames only. Return where the places leave the\n"
                              "blob, or a frame is not whole; with a salt other than 0 also where a checksum is wrong.");

static PyObject *read_frames(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t size;
    (void)module;
    if (takes("read_frames", count, 7) < 0)
        return NULL;
    const char *blob = bytes_of(args[0], &size);
    uint64_t start = unsigned_of(args[1]);
    Py_ssize_t at = index_of(args[3]), places = PyErr_Occurred() ? 0 : PyList_Size(args[2]);
    uint32_t salt = PyErr_Occurred() ? 0 : (uint32_t)PyLong_AsUnsignedLongMask(args[4]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyType_Check(args[5]) || !PyType_IsSubtype((PyTypeObject *)args[5], &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "the type of messages is a tuple");
        return NULL;
    }
    for (; at >= 0 && at < places; at++) {
        uint64_t place = PyLong_AsUnsignedLongLong(PyList_GetItem(args[2], at)), offset = place - start;
        if (PyErr_Occurred())
            return NULL;
        if (place < start || size < HEAD_BYTES || offset > (uint64_t)size - HEAD_BYTES)
            break;
        const char *frame = blob + offset;
        uint64_t length = load(frame + 4, 4);
        if (length < HEAD_BYTES || length > (uint64_t)size - offset)
            break;
        if (salt && frame_sum(frame, length, salt) != load(frame + 8, 4))
            break;
        if (args[6] == Py_None)
            continue;
        PyObject *message = new_message((PyTypeObject *)args[5], frame, length);
        int failed = message == NULL || PyList_Append(args[6], message) < 0;
        Py_XDECREF(message);
        if (failed)
            return NULL;
    }
    return PyLong_FromSsize_t(at);
}

typedef struct {
    Buffer seqs, offsets, sizes, sids, timed;
} Columns;

static int put_64(Buffer *column, uint64_t value)
{
    char *at = grow(column, sizeof value);
    if (at != NULL)
        memcpy(at, &value, sizeof value);
    return at == NULL ? -1 : 0;
}

/* The number of a subject, the next one for a new subject; -1 with an exception set. */
static int64_t number_of(PyObject *ids, PyObject *names, const char *subject, size_t size)
{
    PyObject *name = PyBytes_FromStringAndSize(subject, (Py_ssize_t)size);
    PyObject *known = name ? PyDict_GetItemWithError(ids, name) : NULL;
    int64_t number = -1;
    if (known != NULL) {
        number = PyLong_AsLongLong(known);
    } else if (!PyErr_Occurred()) {
        PyObject *next = PyLong_FromSsize_t(PyList_Size(names));
        if (next != NULL && PyList_Append(names, name) == 0 && PyDict_SetItem(ids, name, next) == 0)
            number = PyLong_AsLongLong(next);
        Py_XDECREF(next);
    }
    Py_XDECREF(name);
    if ((number < 0 || number > UINT32_MAX) && !PyErr_Occurred())
        PyErr_SetString(PyExc_OverflowError, "a subject's number has more than 32 bits");
    return PyErr_Occurred() ? -1 : number;
}

PyDoc_STRVAR(scan_messages_doc,
             "scan_messages(data, position, salt, max_frame, last_seq, durable_seq, first_ts, last_ts, ids, names)\n"
             "-> (position, last_seq, durable_seq, first_ts, last_ts, headed, seqs, offsets, sizes, sids, timed)\n\n"
             "Return the columns of the whole messages from `position` on, up to a frame of another kind or of a batch.\n"
             "New subjects are added to `ids` and `names`.");

static PyObject *scan_messages(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t bytes;
    (void)module;
    if (takes("scan_messages", count, 10) < 0)
        return NULL;
    const char *data = bytes_of(args[0], &bytes), *subject = NULL;
    uint64_t position = unsigned_of(args[1]), max_frame = unsigned_of(args[3]), size = data ? (uint64_t)bytes : 0;
    uint32_t salt = PyErr_Occurred() ? 0 : (uint32_t)PyLong_AsUnsignedLongMask(args[2]);
    uint64_t last_seq = unsigned_of(args[4]), durable_seq = unsigned_of(args[5]);
    uint64_t first_ts = unsigned_of(args[6]), last_ts = unsigned_of(args[7]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyDict_Check(args[8]) || !PyList_Check(args[9])) {
        PyErr_SetString(PyExc_TypeError, "numbers of subjects are in a dict, their names in a list");
        return NULL;
    }
    Columns columns = {0};
    size_t subject_size = 0;
    int64_t sid = 0;
    int headed = 0;
    while (size >= HEAD_BYTES && position <= size - HEAD_BYTES && position <= UINT32_MAX) {
        const char *frame = data + position;
        uint64_t length = load(frame + 4, 4), seq = load(frame + 16, 8), synced_seq = load(frame + 32, 8);
        size_t named = load(frame + 14, 2);
        unsigned flags = (uint8_t)frame[13];
        if (load(frame, 4) != MAGIC || frame[12] != MESSAGE || flags & ~(unsigned)(HAS_HEADER | TIMED))
            break;
        if (length > max_frame || length > size - position || HEAD_BYTES + named > length || seq <= last_seq)
            break;
        if (frame_sum(frame, length, salt) != load(frame + 8, 4))
            break;
        if (subject == NULL || named != subject_size || memcmp(subject, frame + HEAD_BYTES, named)) {
            subject = frame + HEAD_BYTES;
            subject_size = named;
            sid = number_of(args[8], args[9], subject, named);
        }
        if (sid < 0 || put_64(&columns.seqs, seq) < 0 || put_32(&columns.offsets, (uint32_t)position) < 0 ||
            put_32(&columns.sizes, (uint32_t)length - OVER_SIZE) < 0 || put_32(&columns.sids, (uint32_t)sid) < 0 ||
            (flags & TIMED && put_64(&columns.timed, seq) < 0))
            break;
        first_ts = last_ts ? first_ts : load(frame + 24, 8);
        last_ts = load(frame + 24, 8);
        last_seq = seq;
        headed |= flags & HAS_HEADER;
        durable_seq = synced_seq > durable_seq ? synced_seq : durable_seq;
        position += length;
    }
    PyObject *taken[5] = {NULL};
    if (!PyErr_Occurred() && (taken[0] = take_column(&columns.seqs, 'Q')) != NULL &&
        (taken[1] = take_column(&columns.offsets, 'I')) != NULL && (taken[2] = take_column(&columns.sizes, 'I')) != NULL &&
        (taken[3] = take_column(&columns.sids, 'I')) != NULL)
        taken[4] = take_column(&columns.timed, 'Q');
    Buffer *const left[5] = {&columns.seqs, &columns.offsets, &columns.sizes, &columns.sids, &columns.timed};
    for (int place = 0; place < 5; place++)
        PyMem_Free(left[place]->data);
    PyObject *answer = NULL;
    if (taken[4] != NULL)
        answer = Py_BuildValue("KKKKKOOOOOO", (unsigned long long)position, (unsigned long long)last_seq,
                               (unsigned long long)durable_seq, (unsigned long long)first_ts,
                               (unsigned long long)last_ts, headed ? Py_True : Py_False, taken[0], taken[1], taken[2], taken[3], taken[4]);
    for (int place = 0; place < 5; place++)
        Py_XDECREF(taken[place]);
    return answer;
}

PyMethodDef frame_methods[] = {
    {"frame", (PyCFunction)(void (*)(void))frame, METH_FASTCALL, frame_doc},
    {"read_frames", (PyCFunction)(void (*)(void))read_frames, METH_FASTCALL, read_frames_doc},
    {"frame_copies", (PyCFunction)(void (*)(void))frame_copies, METH_FASTCALL, copies_doc},
    {"scan_messages", (PyCFunction)(void (*)(void))scan_messages, METH_FASTCALL, scan_messages_doc},
    {NULL, NULL, 0, NULL},
};
