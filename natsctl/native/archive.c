/* Archives of snapshots: see natsctl/api/archive.

Readers return None for whatever is damaged or unusual, and Python reads it again and says why. */

#include "native.h"

static inline uint32_t load_16(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

static inline uint64_t load(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int byte = 0; byte < bytes; byte++)
        value |= (uint64_t)at[byte] << 8 * byte;
    return value;
}

static inline char *store_64(char *at, uint64_t value)
{
    uint8_t bytes[8] = {(uint8_t)value,         (uint8_t)(value >> 8),  (uint8_t)(value >> 16), (uint8_t)(value >> 24),
                        (uint8_t)(value >> 32), (uint8_t)(value >> 40), (uint8_t)(value >> 48), (uint8_t)(value >> 56)};
    return put_bytes(at, (const char *)bytes, 8);
}

static inline char *store(char *at, uint64_t value, int bytes)
{
    while (bytes--) {
        *at++ = (char)value;
        value >>= 8;
    }
    return at;
}

/* HighwayHash-64: see highwayhash.py. */

typedef struct {
    uint64_t v0[4], v1[4], mul0[4], mul1[4];
    uint8_t rest[32];
    size_t held; /* bytes in rest, fewer than 32 */
} Highway;

static const uint64_t first_mul0[4] = {0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3};
static const uint64_t first_mul1[4] = {0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377};

static inline uint64_t swapped(uint64_t lane)
{
    return lane >> 32 | lane << 32;
}

static void begin_hash(Highway *hash, const uint8_t *key)
{
    for (int lane = 0; lane < 4; lane++) {
        uint64_t word = load_64(key + 8 * lane);
        hash->mul0[lane] = first_mul0[lane];
        hash->mul1[lane] = first_mul1[lane];
        hash->v0[lane] = first_mul0[lane] ^ word;
        hash->v1[lane] = first_mul1[lane] ^ swapped(word);
    }
    hash->held = 0;
}

#define BYTE(at) ((uint64_t)0xFF << 8 * (at))

/* Adds the bytes of two lanes to two others, in the order of the hash's permutation. */
static inline void add_mixed(uint64_t *sums, uint64_t low, uint64_t high)
{
    sums[0] += ((low & BYTE(3)) | (high & BYTE(4))) >> 24 | (low & BYTE(2)) | ((low & BYTE(5)) | (high & BYTE(6))) >> 16 |
               (low & BYTE(1)) << 32 | (high & BYTE(7)) >> 8 | low << 56;
    sums[1] += ((high & BYTE(3)) | (low & BYTE(4))) >> 24 | (high & BYTE(2)) | (high & BYTE(5)) >> 16 |
               (high & BYTE(1)) << 24 | (low & BYTE(6)) >> 8 | (high & BYTE(0)) << 48 | (low & BYTE(7));
}

/* The bytes behind the last whole packet, fewer than 32, laid out as the hash wants them. */
static inline void last_packet(uint8_t *packet, const uint8_t *rest, size_t size)
{
    size_t whole = size & ~(size_t)3, odd = size & 3;
    memset(packet, 0, 32);
    memcpy(packet, rest, whole);
    if (size & 16)
        memcpy(packet + 28, rest + size - 4, 4);
    else if (odd) {
        packet[16] = rest[whole];
        packet[17] = rest[whole + (odd >> 1)];
        packet[18] = rest[size - 1];
    }
}

static void take_plainly(Highway *hash, const uint8_t *data, size_t packets)
{
    for (; packets; packets--, data += 32) {
        for (int lane = 0; lane < 4; lane++) {
            hash->v1[lane] += hash->mul0[lane] + load_64(data + 8 * lane);
            hash->mul0[lane] ^= (hash->v1[lane] & UINT32_MAX) * (hash->v0[lane] >> 32);
            hash->v0[lane] += hash->mul1[lane];
            hash->mul1[lane] ^= (hash->v0[lane] & UINT32_MAX) * (hash->v1[lane] >> 32);
        }
        add_mixed(hash->v0, hash->v1[0], hash->v1[1]);
        add_mixed(hash->v0 + 2, hash->v1[2], hash->v1[3]);
        add_mixed(hash->v1, hash->v0[0], hash->v0[1]);
        add_mixed(hash->v1 + 2, hash->v0[2], hash->v0[3]);
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define LANES(at) _mm256_loadu_si256((const __m256i *)(at))
#define PUT_LANES(at, lanes) _mm256_storeu_si256((__m256i *)(at), lanes)

typedef struct {
    __m256i v0, v1, mul0, mul1;
} Lanes;

__attribute__((target("avx2"), always_inline)) static inline void take_lanes(Lanes *hash, __m256i packet)
{
    const __m256i order = _mm256_set_epi64x(0x070806090D0A040B, 0x000F010E05020C03, 0x070806090D0A040B, 0x000F010E05020C03);
    hash->v1 = _mm256_add_epi64(hash->v1, _mm256_add_epi64(hash->mul0, packet));
    hash->mul0 = _mm256_xor_si256(hash->mul0, _mm256_mul_epu32(hash->v1, _mm256_srli_epi64(hash->v0, 32)));
    hash->v0 = _mm256_add_epi64(hash->v0, hash->mul1);
    hash->mul1 = _mm256_xor_si256(hash->mul1, _mm256_mul_epu32(hash->v0, _mm256_srli_epi64(hash->v1, 32)));
    hash->v0 = _mm256_add_epi64(hash->v0, _mm256_shuffle_epi8(hash->v1, order));
    hash->v1 = _mm256_add_epi64(hash->v1, _mm256_shuffle_epi8(hash->v0, order));
}

/* The same with all four lanes at once. */
__attribute__((target("avx2"))) static void take_by_avx2(Highway *hash, const uint8_t *data, size_t packets)
{
    Lanes lanes = {LANES(hash->v0), LANES(hash->v1), LANES(hash->mul0), LANES(hash->mul1)};
    for (; packets; packets--, data += 32)
        take_lanes(&lanes, LANES(data));
    PUT_LANES(hash->v0, lanes.v0);
    PUT_LANES(hash->v1, lanes.v1);
    PUT_LANES(hash->mul0, lanes.mul0);
    PUT_LANES(hash->mul1, lanes.mul1);
}

/* The hash of a first packet and of what follows it, from a state that nothing was added to. */
__attribute__((target("avx2"))) static uint64_t hash_by_avx2(const Highway *begun, const uint8_t *first,
                                                             const uint8_t *data, size_t size)
{
    Lanes lanes = {LANES(begun->v0), LANES(begun->v1), LANES(begun->mul0), LANES(begun->mul1)};
    uint64_t sums[4];
    take_lanes(&lanes, LANES(first));
    for (; size >= 32; size -= 32, data += 32)
        take_lanes(&lanes, LANES(data));
    if (size) {
        uint8_t packet[32];
        __m128i turn = _mm_cvtsi32_si128((int)size), back = _mm_cvtsi32_si128(32 - (int)size);
        last_packet(packet, data, size);
        lanes.v0 = _mm256_add_epi64(lanes.v0, _mm256_set1_epi32((int)size));
        lanes.v1 = _mm256_or_si256(_mm256_sll_epi32(lanes.v1, turn), _mm256_srl_epi32(lanes.v1, back));
        take_lanes(&lanes, LANES(packet));
    }
    for (int round = 0; round < 4; round++)
        take_lanes(&lanes, _mm256_shuffle_epi32(_mm256_permute4x64_epi64(lanes.v0, 0x4E), 0xB1));
    PUT_LANES(sums, _mm256_add_epi64(_mm256_add_epi64(lanes.v0, lanes.v1), _mm256_add_epi64(lanes.mul0, lanes.mul1)));
    return sums[0];
}
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#else
#define take_by_avx2 take_plainly
#define hash_by_avx2(begun, first, data, size) 0
#define HAS_AVX2 0
#endif

static inline void take_packets(Highway *hash, const uint8_t *data, size_t packets)
{
    if (HAS_AVX2)
        take_by_avx2(hash, data, packets);
    else
        take_plainly(hash, data, packets);
}

static void hash_bytes(Highway *hash, const void *bytes, size_t size)
{
    const uint8_t *data = bytes;
    if (hash->held) {
        size_t part = 32 - hash->held < size ? 32 - hash->held : size;
        memcpy(hash->rest + hash->held, data, part);
        hash->held += part;
        data += part;
        size -= part;
        if (hash->held < 32)
            return;
        take_packets(hash, hash->rest, 1);
    }
    take_packets(hash, data, size / 32);
    hash->held = size % 32;
    memcpy(hash->rest, data + size - hash->held, hash->held);
}

static void hash_rest(Highway *hash)
{
    uint8_t packet[32];
    uint32_t size = (uint32_t)hash->held;
    last_packet(packet, hash->rest, size);
    for (int lane = 0; lane < 4; lane++) {
        uint32_t low = (uint32_t)hash->v1[lane], high = (uint32_t)(hash->v1[lane] >> 32);
        hash->v0[lane] += ((uint64_t)size << 32) + size;
        low = low << size | low >> (32 - size);
        high = high << size | high >> (32 - size);
        hash->v1[lane] = (uint64_t)high << 32 | low;
    }
    take_packets(hash, packet, 1);
}

static uint64_t end_hash(Highway *hash)
{
    if (hash->held)
        hash_rest(hash);
    for (int round = 0; round < 4; round++) {
        uint8_t packet[32];
        for (int lane = 0; lane < 4; lane++)
            store_64((char *)packet + 8 * lane, swapped(hash->v0[lane ^ 2]));
        take_packets(hash, packet, 1);
    }
    return hash->v0[0] + hash->v1[0] + hash->mul0[0] + hash->mul1[0];
}

static const uint8_t *key_of(PyObject *object)
{
    Py_ssize_t size;
    const char *key = bytes_of(object, &size);
    if (key != NULL && size != 32) {
        PyErr_SetString(PyExc_TypeError, "a key has 32 bytes");
        return NULL;
    }
    return (const uint8_t *)key;
}

PyDoc_STRVAR(highway_doc, "highway(key, data) -> bytes\n\nReturn the HighwayHash-64 of `data`, little-endian.");

static PyObject *highway(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Highway hash;
    Py_ssize_t size;
    char digest[8];
    (void)module;
    const uint8_t *key = takes("highway", count, 2) < 0 ? NULL : key_of(args[0]);
    const char *data = key ? bytes_of(args[1], &size) : NULL;
    if (data == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    begin_hash(&hash, key);
    hash_bytes(&hash, data, (size_t)size);
    store_64(digest, end_hash(&hash));
    Py_END_ALLOW_THREADS
    return PyBytes_FromStringAndSize(digest, 8);
}

/* Frames of S2 and Snappy: see s2.py. */

static uint32_t castagnoli[8][256];

int archive_init(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
        castagnoli[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = castagnoli[table - 1][byte];
            castagnoli[table][byte] = crc >> 8 ^ castagnoli[0][crc & 0xFF];
        }
    return 0;
}

static uint32_t crc32c_by_table(uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = load_64(data) ^ crc;
        crc = 0;
        for (int byte = 0; byte < 8; byte++)
            crc ^= castagnoli[7 - byte][word >> 8 * byte & 0xFF];
    }
    while (size--)
        crc = crc >> 8 ^ castagnoli[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_by_sse(uint32_t crc, const uint8_t *data, size_t size)
{
    uint64_t wide = crc;
    for (; size >= 8; data += 8, size -= 8)
        wide = __builtin_ia32_crc32di(wide, load_64(data));
    return crc32c_by_table((uint32_t)wide, data, size);
}
#define HAS_SSE42 __builtin_cpu_supports("sse4.2")
#else
#define crc32c_by_sse crc32c_by_table
#define HAS_SSE42 0
#endif

static uint32_t crc32c(const uint8_t *data, size_t size)
{
    return ~(HAS_SSE42 ? crc32c_by_sse(UINT32_MAX, data, size) : crc32c_by_table(UINT32_MAX, data, size));
}

/* Reads the length before the elements of a block, and returns where they start; NULL where it is none. */
static const uint8_t *block_size(const uint8_t *at, const uint8_t *end, size_t *size)
{
    uint64_t value = 0;
    for (int byte = 0; byte < 5 && at < end; byte++) {
        value |= (uint64_t)(*at & 0x7F) << 7 * byte;
        if (*at++ < 0x80) {
            *size = (size_t)value;
            return value <= 8 << 20 ? at : NULL;
        }
    }
    return NULL;
}

/* Copies bytes that may overlap: `length` of them from `offset` before `to`, with `room` to write in. */
static inline void copy_back(uint8_t *to, size_t offset, size_t length, size_t room)
{
    const uint8_t *from = to - offset;
    if (length <= 16 && offset >= 16 && room >= 16) {
        memcpy(to, from, 16);
        return;
    }
    for (size_t step = offset; length; length -= step) {
        step = (size_t)(to - from) < length ? (size_t)(to - from) : length;
        memcpy(to, from, step);
        to += step;
    }
}

/* Reads the tag of a copy, with the last offset for a repeat, and returns where the next element starts. */
static inline const uint8_t *read_copy(const uint8_t *at, const uint8_t *end, size_t *offset, size_t *length)
{
    static const uint8_t sizes[4] = {0, 2, 3, 5};
    static const uint32_t repeated[8] = {4, 5, 6, 7, 8, 8, 260, 65540};
    unsigned tag = *at, kind = tag & 3, more;
    if (end - at < sizes[kind])
        return NULL;
    if (kind != 1) {
        *offset = kind == 2 ? load_16(at + 1) : load_32(at + 1);
        *length = (tag >> 2) + 1;
    } else if (tag >= 0x20 || at[1]) {
        *offset = (tag & 0xE0) << 3 | at[1];
        *length = (tag >> 2 & 7) + 4;
    } else {
        more = tag >> 2 > 4 ? (tag >> 2) - 4 : 0;
        if ((size_t)(end - at) < 2 + more)
            return NULL;
        *length = repeated[tag >> 2] + (size_t)load(at + 2, (int)more);
        return at + 2 + more;
    }
    return at + sizes[kind];
}

/* Decodes the elements of a block into exactly `size` bytes; -1 where they are damaged. */
static int decode_elements(const uint8_t *at, const uint8_t *end, uint8_t *out, size_t size)
{
    uint8_t *to = out, *stop = out + size;
    size_t offset = 0, length;
    while (at < end) {
        if (*at & 3) {
            at = read_copy(at, end, &offset, &length);
            if (at == NULL || !offset || offset > (size_t)(to - out) || length > (size_t)(stop - to))
                return -1;
            copy_back(to, offset, length, (size_t)(stop - to));
        } else {
            length = *at++ >> 2;
            if (length >= 60) {
                int more = (int)length - 59;
                if (end - at < more)
                    return -1;
                length = (size_t)load(at, more);
                at += more;
            }
            if (++length > (size_t)(end - at) || length > (size_t)(stop - to))
                return -1;
            if (length <= 16 && end - at >= 16 && stop - to >= 16)
                memcpy(to, at, 16);
            else
                memcpy(to, at, length);
            at += length;
        }
        to += length;
    }
    return to == stop ? 0 : -1;
}

/* Where the whole frame with content at `at` ends, and the size of its content; NULL where there is none. */
static const uint8_t *read_frame(const uint8_t *at, const uint8_t *end, size_t *size)
{
    if (end - at < 8 || *at > 1)
        return NULL;
    size_t body = load_32(at) >> 8;
    if (body < 4 || (size_t)(end - at) - 4 < body)
        return NULL;
    *size = body - 4;
    return *at || block_size(at + 8, at + 4 + body, size) ? at + 4 + body : NULL;
}

/* Decodes the content of a frame into exactly `size` bytes; -1 where it is damaged. */
static int decode_frame(const uint8_t *at, const uint8_t *end, uint8_t *to, size_t size)
{
    size_t same;
    if (*at)
        memcpy(to, at + 8, size);
    else if (decode_elements(block_size(at + 8, end, &same), end, to, size) < 0)
        return -1;
    uint32_t crc = crc32c(to, size);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u == load_32(at + 4) ? 0 : -1;
}

PyDoc_STRVAR(unframe_doc, "unframe(data, at, most) -> (content, end)\n\n"
                          "Return the content of the whole frames from `at` on, up to `most` bytes unless one has more, "
                          "and where they end: before the first that is damaged or has no content.");

static PyObject *unframe(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer data;
    size_t size, total = 0, done = 0;
    (void)module;
    if (takes("unframe", count, 3) < 0)
        return NULL;
    Py_ssize_t start = PyLong_AsSsize_t(args[1]), most = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    start = start < 0 || start > data.len ? data.len : start;
    const uint8_t *begin = (const uint8_t *)data.buf + start, *end = (const uint8_t *)data.buf + data.len;
    const uint8_t *at = begin, *next;
    while ((next = read_frame(at, end, &size)) != NULL && (!total || (Py_ssize_t)(total + size) <= most)) {
        total += size;
        at = next;
    }
    PyObject *content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    uint8_t *to = content ? (uint8_t *)PyBytes_AsString(content) : NULL;
    if (to != NULL) {
        const uint8_t *stop = at;
        Py_BEGIN_ALLOW_THREADS
        for (at = begin; at < stop; at = next) {
            next = read_frame(at, end, &size);
            if (decode_frame(at, next, to + done, size) < 0)
                break;
            done += size;
        }
        Py_END_ALLOW_THREADS
        start = at - (const uint8_t *)data.buf;
    }
    PyBuffer_Release(&data);
    if (content == NULL || done == total)
        return content ? Py_BuildValue("(Nn)", content, start) : NULL;
    PyObject *found = Py_BuildValue("(y#n)", (const char *)to, (Py_ssize_t)done, start);
    Py_DECREF(content);
    return found;
}

/* Messages as tuples: (seq, ts_ns, subject, header, payload). */

typedef struct {
    uint64_t seq;
    int64_t ts_ns;
    const uint8_t *subject, *header, *payload;
    size_t subject_size, header_size, payload_size;
} Message;

/* The type of the tuples that a reader makes, and the subject of the last one, which the next often has too. */
typedef struct {
    PyTypeObject *type;
    allocfunc make;
    PyObject *subject;
} Maker;

static int read_maker(Maker *maker, PyObject *type)
{
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "messages are of a type of tuples");
        return -1;
    }
    maker->type = (PyTypeObject *)type;
    maker->make = (allocfunc)PyType_GetSlot(maker->type, Py_tp_alloc);
    maker->subject = NULL;
    return 0;
}

static PyObject *subject_of(Maker *maker, const uint8_t *data, size_t size)
{
    Py_ssize_t last_size;
    char *last;
    if (maker->subject != NULL) {
        PyBytes_AsStringAndSize(maker->subject, &last, &last_size);
        if ((size_t)last_size == size && memcmp(last, data, size) == 0)
            return Py_NewRef(maker->subject);
        Py_DECREF(maker->subject);
    }
    maker->subject = PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)size);
    return Py_XNewRef(maker->subject);
}

/* Adds a message to a list; -1 with an exception set. */
static int add_message(PyObject *list, Maker *maker, const Message *message)
{
    PyObject *tuple = maker->make(maker->type, 5);
    if (tuple == NULL)
        return -1;
    PyObject *parts[5] = {
        PyLong_FromUnsignedLongLong(message->seq),
        PyLong_FromLongLong(message->ts_ns),
        subject_of(maker, message->subject, message->subject_size),
        PyBytes_FromStringAndSize((const char *)message->header, (Py_ssize_t)message->header_size),
        PyBytes_FromStringAndSize((const char *)message->payload, (Py_ssize_t)message->payload_size),
    };
    int failed = 0;
    for (int at = 0; at < 5; at++)
        failed |= parts[at] == NULL || PyTuple_SetItem(tuple, at, parts[at]) < 0;
    if (!failed)
        failed = PyList_Append(list, tuple) < 0;
    Py_DECREF(tuple);
    return failed ? -1 : 0;
}

/* Reads the fields of a message that a writer takes, which stay the tuple's. */
static int read_message(PyObject *tuple, Message *message)
{
    Py_ssize_t sizes[3];
    const char *parts[3];
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 5) {
        PyErr_SetString(PyExc_TypeError, "a message is (seq, ts_ns, subject, header, payload)");
        return -1;
    }
    message->seq = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, 0));
    message->ts_ns = signed_of(PyTuple_GetItem(tuple, 1));
    for (int part = 0; part < 3 && !PyErr_Occurred(); part++)
        parts[part] = bytes_of(PyTuple_GetItem(tuple, 2 + part), sizes + part);
    if (PyErr_Occurred())
        return -1;
    message->subject = (const uint8_t *)parts[0];
    message->header = (const uint8_t *)parts[1];
    message->payload = (const uint8_t *)parts[2];
    message->subject_size = (size_t)sizes[0];
    message->header_size = (size_t)sizes[1];
    message->payload_size = (size_t)sizes[2];
    return 0;
}

/* What is counted of messages that are not made: see `Counted` in archive.py. */
typedef struct {
    uint64_t messages, payload_bytes, record_bytes, with_header, first_seq, last_seq;
    int64_t first_ts_ns, last_ts_ns;
    PyObject *subjects; /* a dict */
    const uint8_t *subject;
    size_t subject_size;
    uint64_t alike; /* messages on `subject` that are not in the dict yet */
} Count;

static int count_subject(Count *count)
{
    if (!count->alike)
        return 0;
    PyObject *name = PyBytes_FromStringAndSize((const char *)count->subject, (Py_ssize_t)count->subject_size);
    PyObject *before = name ? PyDict_GetItemWithError(count->subjects, name) : NULL;
    uint64_t number = (before ? unsigned_of(before) : 0) + count->alike;
    PyObject *after = PyErr_Occurred() ? NULL : PyLong_FromUnsignedLongLong(number);
    int failed = after == NULL || PyDict_SetItem(count->subjects, name, after) < 0;
    count->alike = 0;
    Py_XDECREF(name);
    Py_XDECREF(after);
    return failed ? -1 : 0;
}

/* Counts a message; -1 with an exception set. */
static inline int count_message(Count *count, const Message *message)
{
    if (!count->messages++) {
        count->first_seq = message->seq;
        count->first_ts_ns = message->ts_ns;
    }
    count->last_seq = message->seq;
    count->last_ts_ns = message->ts_ns;
    count->payload_bytes += message->payload_size;
    count->record_bytes += message->subject_size + message->header_size + message->payload_size;
    count->with_header += message->header_size > 0;
    if (count->alike && count->subject_size == message->subject_size &&
        memcmp(count->subject, message->subject, message->subject_size) == 0) {
        count->alike++;
        return 0;
    }
    if (count_subject(count) < 0)
        return -1;
    count->subject = message->subject;
    count->subject_size = message->subject_size;
    count->alike = 1;
    return 0;
}

/* The fields of `Counted`. */
static PyObject *take_count(Count *count)
{
    if (count_subject(count) < 0)
        return NULL;
    return Py_BuildValue("(KKKKKLKLO)", count->messages, count->payload_bytes, count->record_bytes, count->with_header,
                         count->first_seq, (long long)count->first_ts_ns, count->last_seq,
                         (long long)count->last_ts_ns, count->subjects);
}

typedef int (*PutRecord)(Buffer *out, const Message *message, const uint8_t *key);

/* The records of messages, one after the other. */
static PyObject *write_records(PyObject *messages, PutRecord put, const uint8_t *key)
{
    Buffer out = {0};
    Message message;
    PyObject *list = list_of(messages);
    if (list == NULL)
        return NULL;
    Py_ssize_t length = PyList_Size(list);
    for (Py_ssize_t at = 0; at < length; at++) {
        PyObject *tuple = Py_XNewRef(PyList_GetItem(list, at)); /* its numbers may call Python, which may change the list */
        int failed = tuple == NULL || read_message(tuple, &message) < 0 || put(&out, &message, key) < 0;
        Py_XDECREF(tuple);
        if (failed)
            break;
    }
    Py_DECREF(list);
    if (!PyErr_Occurred())
        return take_buffer(&out);
    PyMem_Free(out.data);
    return NULL;
}

/* Records of version 1: see archive_v1.py. */

#define V1_HEAD 22
#define V1_LEAST 30 /* head and hash */
#define V1_HAS_HEADER ((uint32_t)1 << 31)
#define V1_SEQ (((uint64_t)1 << 62) - 1)

/* The hash of a record, by the state of a hash with the right key that nothing was added to. */
static uint64_t record_hash(const Message *message, const Highway *begun)
{
    size_t body = message->subject_size + message->payload_size;
    char numbers[32];
    store_64(store_64(numbers, message->seq), (uint64_t)message->ts_ns);
    if (HAS_AVX2 && body >= 16 && message->subject + message->subject_size == message->payload) {
        memcpy(numbers + 16, message->subject, 16);
        return hash_by_avx2(begun, (const uint8_t *)numbers, message->subject + 16, body - 16);
    }
    Highway hash = *begun;
    hash_bytes(&hash, numbers, 16);
    hash_bytes(&hash, message->subject, message->subject_size);
    hash_bytes(&hash, message->header, message->header_size);
    hash_bytes(&hash, message->payload, message->payload_size);
    return end_hash(&hash);
}

static int put_v1(Buffer *out, const Message *message, const uint8_t *key)
{
    uint64_t size = V1_LEAST + message->subject_size + message->header_size + message->payload_size;
    size += message->header_size ? 4 : 0;
    if (size >= V1_HAS_HEADER || message->subject_size > UINT16_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a message is too long for a record");
        return -1;
    }
    char *at = grow(out, size);
    if (at == NULL)
        return -1;
    at = store(at, size | (message->header_size ? V1_HAS_HEADER : 0), 4);
    at = store_64(at, message->seq);
    at = store_64(at, (uint64_t)message->ts_ns);
    at = store(at, message->subject_size, 2);
    at = put_bytes(at, (const char *)message->subject, message->subject_size);
    if (message->header_size)
        at = put_bytes(store(at, message->header_size, 4), (const char *)message->header, message->header_size);
    at = put_bytes(at, (const char *)message->payload, message->payload_size);
    Highway begun;
    begin_hash(&begun, key);
    store_64(at, record_hash(message, &begun));
    return 0;
}

PyDoc_STRVAR(write_v1_doc, "write_v1(messages, key) -> bytes\n\nReturn the records of a block of version 1.");

static PyObject *write_v1(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    const uint8_t *key = takes("write_v1", count, 2) < 0 ? NULL : key_of(args[1]);
    return key ? write_records(args[0], put_v1, key) : NULL;
}

/* Reads the record at `at`; its length, 0 where it is incomplete or -1 where it is damaged. `more` is set for 0. */
static int64_t read_v1_record(const uint8_t *at, size_t size, Message *message, size_t *more)
{
    *more = V1_LEAST;
    if (size < V1_LEAST)
        return 0;
    uint32_t flagged = load_32(at);
    size_t length = flagged & ~V1_HAS_HEADER, header = V1_HEAD + load_16(at + 20);
    if (length < header + 8)
        return -1;
    *more = length;
    if (length > size)
        return 0;
    message->seq = load_64(at + 4);
    message->ts_ns = (int64_t)load_64(at + 12);
    message->subject = at + V1_HEAD;
    message->subject_size = header - V1_HEAD;
    message->header_size = 0;
    if (flagged & V1_HAS_HEADER) {
        if (length < header + 12 || (message->header_size = load_32(at + header)) > length - header - 12)
            return -1;
        header += 4;
    }
    message->header = at + header;
    message->payload = at + header + message->header_size;
    message->payload_size = length - 8 - header - message->header_size;
    return (int64_t)length;
}

/* Checks the hashes of all whole records. Returns where they end, -1 where one is damaged. */
static int64_t check_v1(const uint8_t *data, size_t size, const uint8_t *key, size_t *more)
{
    Message message;
    Highway begun;
    size_t at = 0;
    int64_t length;
    begin_hash(&begun, key);
    while ((length = read_v1_record(data + at, size - at, &message, more)) > 0) {
        at += (size_t)length;
        if (record_hash(&message, &begun) != load_64(data + at - 8))
            return -1;
    }
    return length < 0 ? -1 : (int64_t)at;
}

PyDoc_STRVAR(read_v1_doc, "read_v1(data, key, message_type, gone_type) -> (items, end, more) | None\n\n"
                          "Return the items of the whole records in `data`, where they end, and the size of the next.");

static PyObject *read_v1(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t size;
    Maker maker;
    Message message;
    int64_t end;
    size_t more, ignored;
    (void)module;
    const char *bytes = takes("read_v1", count, 4) < 0 ? NULL : bytes_of(args[0], &size);
    const uint8_t *key = bytes ? key_of(args[1]) : NULL, *data = (const uint8_t *)bytes;
    if (key == NULL || read_maker(&maker, args[2]) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    end = check_v1(data, (size_t)size, key, &more);
    Py_END_ALLOW_THREADS
    if (end < 0)
        Py_RETURN_NONE;
    PyObject *items = PyList_New(0);
    for (int64_t at = 0; items != NULL && at < end;) {
        at += read_v1_record(data + at, (size_t)(end - at), &message, &ignored);
        int failed = 0;
        if (message.seq && message.seq <= V1_SEQ)
            failed = add_message(items, &maker, &message);
        else if (message.seq & V1_SEQ) {
            PyObject *gone = PyObject_CallFunction(args[3], "KL", message.seq & V1_SEQ, (long long)message.ts_ns);
            failed = gone == NULL || PyList_Append(items, gone) < 0;
            Py_XDECREF(gone);
        }
        if (failed)
            Py_CLEAR(items);
    }
    Py_XDECREF(maker.subject);
    return items ? Py_BuildValue("NLn", items, (long long)end, (Py_ssize_t)more) : NULL;
}

PyDoc_STRVAR(count_v1_doc, "count_v1(data, key, first_seq) -> (counted, end, more) | None\n\n"
                           "Count the whole records in `data`; None unless all are messages from `first_seq` on.");

static PyObject *count_v1(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    Message message;
    int64_t end;
    size_t more, ignored;
    (void)module;
    const uint8_t *key = takes("count_v1", count, 3) < 0 ? NULL : key_of(args[1]);
    uint64_t first_seq = key ? unsigned_of(args[2]) : 0;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *data = view.buf;
    Py_BEGIN_ALLOW_THREADS
    end = check_v1(data, (size_t)view.len, key, &more);
    Py_END_ALLOW_THREADS
    int plain = end >= 0;
    Count found = {.subjects = plain ? PyDict_New() : NULL};
    for (int64_t at = 0; plain && at < end && !PyErr_Occurred();) {
        at += read_v1_record(data + at, (size_t)(end - at), &message, &ignored);
        plain = message.seq && message.seq <= V1_SEQ && message.seq >= first_seq;
        if (plain)
            count_message(&found, &message);
    }
    PyObject *counted = plain && !PyErr_Occurred() ? take_count(&found) : NULL;
    PyBuffer_Release(&view);
    Py_XDECREF(found.subjects);
    if (counted != NULL)
        return Py_BuildValue("NLn", counted, (long long)end, (Py_ssize_t)more);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* Records of version 2: see archive_v2.py. */

static char *put_varint(char *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (char)(value | 0x80);
    *at++ = (char)value;
    return at;
}

static int put_v2(Buffer *out, const Message *message, const uint8_t *key)
{
    char numbers[50], *at = put_varint(numbers, message->subject_size);
    (void)key;
    at = put_varint(at, (uint64_t)message->ts_ns << 1 ^ (message->ts_ns < 0 ? UINT64_MAX : 0));
    at = put_varint(at, message->seq);
    at = put_varint(at, message->header_size);
    at = put_varint(at, message->payload_size);
    size_t size = (size_t)(at - numbers);
    at = grow(out, size + message->subject_size + message->header_size + message->payload_size);
    if (at == NULL)
        return -1;
    at = put_bytes(at, numbers, size);
    at = put_bytes(at, (const char *)message->subject, message->subject_size);
    at = put_bytes(at, (const char *)message->header, message->header_size);
    put_bytes(at, (const char *)message->payload, message->payload_size);
    return 0;
}

PyDoc_STRVAR(write_v2_doc, "write_v2(messages) -> bytes\n\nReturn the records of messages in version 2.");

static PyObject *write_v2(PyObject *module, PyObject *messages)
{
    (void)module;
    return write_records(messages, put_v2, NULL);
}

/* Reads the five numbers of a record; their length, 0 where they are incomplete or -1 where they are damaged. */
static int read_numbers(const uint8_t *data, size_t size, uint64_t *numbers)
{
    size_t at = 0;
    for (int number = 0; number < 5; number++) {
        uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            if (at == size)
                return 0;
            uint8_t byte = data[at++];
            if (shift == 63 && byte > 1)
                return -1;
            value |= (uint64_t)(byte & 0x7F) << shift;
            if (byte < 0x80)
                break;
        }
        numbers[number] = value;
    }
    return (int)at;
}

#define V2_NAME_BYTES ((uint64_t)1 << 20)
#define V2_BODY_BYTES ((uint64_t)71 << 20)

static int is_possible(const uint64_t *numbers)
{
    uint64_t header = numbers[3], payload = numbers[4];
    return numbers[0] <= V2_NAME_BYTES && header <= V2_BODY_BYTES && payload <= V2_BODY_BYTES - header;
}

/* Reads the record at `at`; its length, 0 where it is incomplete, with `more`, or -1 where it is damaged. */
static int64_t read_v2_record(const uint8_t *at, size_t size, Message *message, size_t *more)
{
    uint64_t numbers[5];
    int head = read_numbers(at, size, numbers);
    if (head < 0 || (head && !is_possible(numbers)))
        return -1;
    *more = head ? (size_t)head + numbers[0] + numbers[3] + numbers[4] : size + 1;
    if (*more > size)
        return 0;
    message->seq = numbers[2];
    message->ts_ns = (int64_t)(numbers[1] >> 1 ^ (numbers[1] & 1 ? UINT64_MAX : 0));
    message->subject = at + head;
    message->subject_size = numbers[0];
    message->header = message->subject + numbers[0];
    message->header_size = numbers[3];
    message->payload = message->header + numbers[3];
    message->payload_size = numbers[4];
    return (int64_t)*more;
}

/* Whether it is the record of zeros, which is the last. */
static inline int is_last(const Message *message)
{
    return !(message->seq | (uint64_t)message->ts_ns | message->subject_size | message->header_size |
             message->payload_size);
}

PyDoc_STRVAR(read_v2_doc, "read_v2(data, message_type) -> (messages, end, more, last) | None\n\n"
                          "Return the whole records in `data`, where they end, how many bytes the next needs, and whether all came.");

static PyObject *read_v2(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t size, at = 0;
    Maker maker;
    Message message;
    int64_t length = 1;
    size_t more = 0;
    int last = 0;
    (void)module;
    const char *bytes = takes("read_v2", count, 2) < 0 ? NULL : bytes_of(args[0], &size);
    if (bytes == NULL || read_maker(&maker, args[1]) < 0)
        return NULL;
    PyObject *messages = PyList_New(0);
    while (messages != NULL && !last &&
           (length = read_v2_record((const uint8_t *)bytes + at, (size_t)(size - at), &message, &more)) > 0) {
        last = is_last(&message);
        if (!last && add_message(messages, &maker, &message) < 0)
            Py_CLEAR(messages);
        at += length;
    }
    Py_XDECREF(maker.subject);
    if (messages != NULL && length >= 0)
        return Py_BuildValue("NnnN", messages, at, last ? 0 : (Py_ssize_t)more, PyBool_FromLong(last));
    Py_XDECREF(messages);
    return length < 0 ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(count_v2_doc, "count_v2(data) -> (counted, end, more, last) | None\n\n"
                           "Do the same and count the messages; None also where one has no sequence.");

static PyObject *count_v2(PyObject *module, PyObject *object)
{
    Py_buffer view;
    Message message;
    int64_t at = 0, length;
    size_t more;
    int last = 0;
    (void)module;
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Count found = {.subjects = PyDict_New()};
    while ((length = read_v2_record((const uint8_t *)view.buf + at, (size_t)(view.len - at), &message, &more)) > 0) {
        at += length;
        last = is_last(&message);
        if (last || !message.seq || found.subjects == NULL || count_message(&found, &message) < 0)
            break;
    }
    PyObject *counted = !PyErr_Occurred() && (!length || last) ? take_count(&found) : NULL;
    PyBuffer_Release(&view);
    Py_XDECREF(found.subjects);
    if (counted != NULL)
        return Py_BuildValue("NnnN", counted, (Py_ssize_t)at, last ? 0 : (Py_ssize_t)more, PyBool_FromLong(last));
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyMethodDef archive_methods[] = {
    {"highway", (PyCFunction)(void (*)(void))highway, METH_FASTCALL, highway_doc},
    {"unframe", (PyCFunction)(void (*)(void))unframe, METH_FASTCALL, unframe_doc},
    {"count_v1", (PyCFunction)(void (*)(void))count_v1, METH_FASTCALL, count_v1_doc},
    {"count_v2", count_v2, METH_O, count_v2_doc},
    {"read_v1", (PyCFunction)(void (*)(void))read_v1, METH_FASTCALL, read_v1_doc},
    {"write_v1", (PyCFunction)(void (*)(void))write_v1, METH_FASTCALL, write_v1_doc},
    {"read_v2", (PyCFunction)(void (*)(void))read_v2, METH_FASTCALL, read_v2_doc},
    {"write_v2", write_v2, METH_O, write_v2_doc},
    {NULL, NULL, 0, NULL},
};
