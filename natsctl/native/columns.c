/* Questions about whole columns of a stream's index: see natsctl/store/filters.py and columns.py. */

#include "native.h"

typedef struct {
    const char *at, *end;
} Text;

static int read_text(PyObject *object, Text *text)
{
    Py_ssize_t size;
    text->at = bytes_of(object, &size);
    if (text->at == NULL)
        return -1;
    text->end = text->at + size;
    return 0;
}

/* Patterns as a tree of their tokens. `*` and a final `>` are marks of a node, other tokens are edges in a hash table. */
typedef struct {
    Text token;
    uint32_t from, to; /* nodes; the root is 0, so that `to` is 0 in a free place */
} Edge;

typedef struct {
    const Edge *edge; /* the only one, if not `many`; NULL if there is none */
    uint32_t any;     /* the node below `*`, 0 if there is none */
    uint8_t many, rest, end;
} Node;

typedef struct {
    const char *at;
    uint32_t node;
} Branch;

typedef struct {
    uint64_t seed;
    size_t mask;
    Edge *edges;
    Node *nodes;
    Branch *waiting;
    uint32_t last;
} Tree;

/* The end of the token at `at`, and its hash below a node. The seed is secret, so that nobody can make tokens collide. */
static const char *hash_token(const Tree *tree, uint32_t node, const char *at, const char *end, uint64_t *hash)
{
    uint64_t mixed = tree->seed ^ node;
    while (at < end && *at != '.')
        mixed = (mixed ^ (uint8_t)*at++) * 0x9E3779B97F4A7C15;
    *hash = mixed ^ mixed >> 32;
    return at;
}

/* The edge from a node by a token, or the free place for it. */
static Edge *edge_of(const Tree *tree, uint32_t node, Text token, uint64_t hash)
{
    size_t size = (size_t)(token.end - token.at);
    for (size_t place = hash & tree->mask;; place = (place + 1) & tree->mask) {
        Edge *edge = &tree->edges[place];
        if (!edge->to || (edge->from == node && (size_t)(edge->token.end - edge->token.at) == size &&
                          !memcmp(edge->token.at, token.at, size)))
            return edge;
    }
}

static void add_pattern(Tree *tree, Text pattern)
{
    uint32_t node = 0;
    for (Text token = pattern;; token.at = token.end + 1) {
        uint64_t hash;
        token.end = hash_token(tree, node, token.at, pattern.end, &hash);
        Py_ssize_t size = token.end - token.at;
        Node *above = &tree->nodes[node];
        uint32_t *below = &above->any;
        if (size == 1 && *token.at == '>' && token.end == pattern.end) {
            above->rest = 1;
            return;
        }
        if (size != 1 || *token.at != '*') {
            Edge *edge = edge_of(tree, node, token, hash);
            if (!edge->to) {
                edge->token = token;
                edge->from = node;
                above->many = above->edge != NULL;
                above->edge = edge;
            }
            below = &edge->to;
        }
        if (!*below)
            *below = ++tree->last;
        node = *below;
        if (token.end == pattern.end) {
            tree->nodes[node].end = 1;
            return;
        }
    }
}

/* The node to which an edge leads from another by the token at `token->at`, or 0; finds the end of the token too. */
static uint32_t follow(const Tree *tree, uint32_t number, Text *token, const char *end)
{
    const Node *node = &tree->nodes[number];
    if (node->many) {
        uint64_t hash;
        token->end = hash_token(tree, number, token->at, end, &hash);
        return edge_of(tree, number, *token, hash)->to;
    }
    if (node->edge != NULL) {
        Text only = node->edge->token;
        size_t size = (size_t)(only.end - only.at);
        if ((size_t)(end - token->at) >= size && !memcmp(token->at, only.at, size)) {
            token->end = token->at + size;
            if (token->end == end || *token->end == '.')
                return node->edge->to;
        }
    }
    for (token->end = token->at; token->end < end && *token->end != '.';)
        token->end++;
    return 0;
}

/* Whether a subject matches a pattern: `*` is one token of at least one byte, a final `>` all the rest, if any. Only one
 * path leads to a node, so that each is visited once at most. */
static int matches(const Tree *tree, Text subject)
{
    size_t waiting = 0;
    Branch branch = {subject.at, 0};
    for (;;) {
        const Node *node = &tree->nodes[branch.node];
        Text token = {branch.at, branch.at};
        if (node->rest && token.at < subject.end)
            return 1;
        uint32_t below = follow(tree, branch.node, &token, subject.end);
        uint32_t any = token.end > token.at ? node->any : 0;
        if (token.end == subject.end) {
            if ((below && tree->nodes[below].end) || (any && tree->nodes[any].end))
                return 1;
        } else {
            if (any)
                tree->waiting[waiting++] = (Branch){token.end + 1, any};
            if (below)
                tree->waiting[waiting++] = (Branch){token.end + 1, below};
        }
        if (!waiting)
            return 0;
        branch = tree->waiting[--waiting];
    }
}

static void free_tree(Tree *tree)
{
    PyMem_Free(tree->edges);
    PyMem_Free(tree->nodes);
    PyMem_Free(tree->waiting);
}

/* Makes the tree of a tuple of patterns, whose bytes it refers to; -1 with an exception if it cannot. */
static int grow_tree(Tree *tree, PyObject *patterns, Py_ssize_t count)
{
    size_t tokens = 1, places = 2;
    Text pattern;
    for (Py_ssize_t number = 0; number < count; number++) {
        if (read_text(PyTuple_GetItem(patterns, number), &pattern) < 0)
            return -1;
        tokens++;
        for (const char *at = pattern.at; at < pattern.end; at++)
            tokens += *at == '.';
    }
    while (places < tokens * 2)
        places *= 2;
    tree->seed = (uint64_t)PyObject_Hash(patterns);
    tree->mask = places - 1;
    tree->edges = PyMem_Calloc(places, sizeof(Edge));
    tree->nodes = PyMem_Calloc(tokens, sizeof(Node));
    tree->waiting = PyMem_Calloc(tokens, sizeof(Branch));
    if (tree->edges == NULL || tree->nodes == NULL || tree->waiting == NULL || tokens > UINT32_MAX) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t number = 0; number < count; number++) {
        read_text(PyTuple_GetItem(patterns, number), &pattern);
        add_pattern(tree, pattern);
    }
    return 0;
}

/* Adds the numbers in [start, end) of the names that match a pattern. */
static int add_matching(Buffer *out, PyObject *names, Py_ssize_t start, Py_ssize_t end, const Tree *tree)
{
    for (Py_ssize_t number = start; number < end; number++) {
        PyObject *name = PyList_GetItem(names, number);
        Text subject;
        if (name == NULL || read_text(name, &subject) < 0)
            return -1;
        if (matches(tree, subject)) {
            char *at = grow(out, 4);
            uint32_t found = (uint32_t)number;
            if (at == NULL)
                return -1;
            memcpy(at, &found, 4);
        }
    }
    return 0;
}

PyDoc_STRVAR(matching_doc, "matching(names, start, end, patterns) -> bytes\n\n"
                           "Return the numbers from `start` to below `end` of the names that match a pattern, as a "
                           "column of 32 bits each.");

static PyObject *matching(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (takes("matching", count, 4) < 0)
        return NULL;
    Py_ssize_t start = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    Py_ssize_t number = PyTuple_Size(args[3]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyList_Check(args[0]) || start < 0 || end > PyList_Size(args[0]) || end > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "names must be a list that holds `end` of them");
        return NULL;
    }
    Tree tree = {0};
    Buffer out = {0};
    int failed = grow_tree(&tree, args[3], number) < 0 || add_matching(&out, args[0], start, end, &tree) < 0;
    free_tree(&tree);
    if (failed) {
        PyMem_Free(out.data);
        return NULL;
    }
    return take_buffer(&out);
}

/* Reads a column of numbers of `width` bytes; -1 with an exception where it is none. `PyBuffer_Release` ends it. */
static int read_column(PyObject *object, Py_ssize_t width, Py_buffer *column)
{
    if (PyObject_GetBuffer(object, column, PyBUF_SIMPLE | PyBUF_FORMAT) < 0)
        return -1;
    if (column->itemsize == width)
        return 0;
    PyBuffer_Release(column);
    PyErr_Format(PyExc_TypeError, "a column of %zd bytes a number is needed", width);
    return -1;
}

#define GONE UINT32_MAX /* the number of no subject */

typedef struct {
    uint32_t count, last;
} Subject;

/* The columns of the subjects that occur: numbers, counts, newest sequences. */
static PyObject *tally_columns(const Subject *subjects, uint64_t end, const uint64_t *seqs, uint64_t base)
{
    Py_ssize_t used = 0;
    for (uint64_t sid = 0; sid < end; sid++)
        used += subjects[sid].count > 0;
    PyObject *keys = PyBytes_FromStringAndSize(NULL, used * 4);
    PyObject *counts = PyBytes_FromStringAndSize(NULL, used * 4);
    PyObject *lasts = PyBytes_FromStringAndSize(NULL, used * 8);
    if (keys != NULL && counts != NULL && lasts != NULL) {
        char *key = PyBytes_AsString(keys), *number = PyBytes_AsString(counts), *last = PyBytes_AsString(lasts);
        for (uint64_t sid = 0; sid < end; sid++) {
            if (!subjects[sid].count)
                continue;
            uint32_t small = (uint32_t)sid;
            uint64_t seq = seqs ? seqs[subjects[sid].last] : base + subjects[sid].last;
            key = put_bytes(key, (const char *)&small, 4);
            number = put_bytes(number, (const char *)&subjects[sid].count, 4);
            last = put_bytes(last, (const char *)&seq, 8);
        }
    }
    return Py_BuildValue("(NNN)", keys, counts, lasts); /* NULL where one of them is */
}

/* Counts the messages of each subject in one pass over the numbers. */
static PyObject *count_subjects(const uint32_t *sids, size_t size, const uint64_t *seqs, uint64_t base)
{
    uint64_t end = 0;
    for (size_t at = 0; at < size; at++)
        if (sids[at] != GONE && sids[at] >= end)
            end = (uint64_t)sids[at] + 1;
    Subject *subjects = PyMem_Calloc((size_t)end + 1, sizeof(Subject));
    if (subjects == NULL)
        return PyErr_NoMemory();
    for (size_t at = 0; at < size; at++)
        if (sids[at] != GONE) {
            subjects[sids[at]].count++;
            subjects[sids[at]].last = (uint32_t)at;
        }
    PyObject *found = tally_columns(subjects, end, seqs, base);
    PyMem_Free(subjects);
    return found;
}

PyDoc_STRVAR(tally_doc, "tally(sids, seqs, base) -> tuple[bytes, bytes, bytes]\n\n"
                        "Return numbers, counts and newest sequences of the subjects that occur in a column; without "
                        "`seqs` the sequences count up from `base`.");

static PyObject *tally(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (takes("tally", count, 3) < 0)
        return NULL;
    uint64_t base = PyLong_AsUnsignedLongLong(args[2]);
    Py_buffer sids, seqs = {0};
    if (PyErr_Occurred() || read_column(args[0], 4, &sids) < 0)
        return NULL;
    PyObject *found = NULL;
    size_t size = (size_t)sids.len / 4;
    if (args[1] == Py_None)
        found = count_subjects(sids.buf, size, NULL, base);
    else if (read_column(args[1], 8, &seqs) == 0) {
        if ((size_t)seqs.len / 8 == size)
            found = count_subjects(sids.buf, size, seqs.buf, base);
        else
            PyErr_SetString(PyExc_ValueError, "there must be as many sequences as numbers of subjects");
        PyBuffer_Release(&seqs);
    }
    PyBuffer_Release(&sids);
    return found;
}

#define BLOCK 16 /* offsets of which the first is kept whole */

/* A column of numbers that stay, in as few bits each as the distance from the smallest to the largest needs. */
typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    uint32_t low, mask;
    unsigned bits;
    uint8_t *data; /* 8 bytes longer than the numbers, because any is read with what follows */
} PackedColumn;

static PyTypeObject *packed_type;

static inline uint32_t packed_at(const PackedColumn *column, Py_ssize_t at)
{
    uint64_t bit = (uint64_t)at * column->bits;
    return column->low + ((uint32_t)(load_64(column->data + bit / 8) >> bit % 8) & column->mask);
}

/* Columns of numbers that a function works on. */

static void close_columns(Py_buffer *columns, int count)
{
    while (count--)
        if (columns[count].itemsize)
            PyBuffer_Release(columns + count);
        else
            Py_XDECREF(columns[count].obj); /* packed, or not given */
}

/* Whether two columns lie in the same memory. */
static inline int overlap(const Py_buffer *one, const Py_buffer *two)
{
    const char *first = one->buf, *second = two->buf;
    return one->len && two->len && first < second + two->len && second < first + one->len;
}

static int open_column(int kind, PyObject *object, Py_buffer *column)
{
    int width = kind | 0x20;
    if (width == 'n' && Py_IS_TYPE(object, packed_type)) {
        column->buf = column->obj = Py_NewRef(object);
        return 0;
    }
    if (PyObject_GetBuffer(object, column, PyBUF_FORMAT | (kind < 'a' ? PyBUF_WRITABLE : 0)) < 0)
        return -1;
    Py_ssize_t size = column->itemsize;
    if (size == (width == 'b' ? 1 : width == 'q' ? 8 : 4))
        return 0;
    PyBuffer_Release(column);
    PyErr_Format(PyExc_TypeError, "a column has %zd bytes a number, which is another width", size);
    return -1;
}

/* Opens a column for each letter: b, i and q have 1, 4 and 8 bytes a number, n may be packed instead of 4;
   a capital one is written to, and may not overlap with another. `?` behind the letter allows None. Returns -1 with an
   exception set if one cannot be opened, and then none is open. */
static int open_columns(const char *kinds, PyObject *const *args, Py_buffer *columns)
{
    unsigned written = 0;
    for (int at = 0; *kinds; kinds++, at++) {
        int kind = *kinds, apart = 1;
        memset(columns + at, 0, sizeof *columns);
        if (kinds[1] == '?' && kinds++ && args[at] == Py_None)
            continue;
        if (open_column(kind, args[at], columns + at) < 0) {
            close_columns(columns, at);
            return -1;
        }
        written |= kind < 'a' ? 1u << at : 0;
        for (int other = 0; other < at; other++)
            apart &= !overlap(columns + at, columns + other) || !(written & (1u << at | 1u << other));
        if (!apart) {
            PyErr_SetString(PyExc_ValueError, "a column that is written to overlaps with another");
            close_columns(columns, at + 1);
            return -1;
        }
    }
    return 0;
}

static inline Py_ssize_t length_of(const Py_buffer *column)
{
    if (column->itemsize)
        return column->len / column->itemsize;
    return column->obj ? ((const PackedColumn *)column->obj)->count : 0;
}

/* The number at a place of a column of 4 bytes each, or of a packed one. */
static inline uint32_t number_at(const Py_buffer *column, size_t at)
{
    return column->itemsize ? ((const uint32_t *)column->buf)[at] : packed_at(column->buf, (Py_ssize_t)at);
}

/* The sequence at a position: listed, or counted up from a base. */
static inline uint64_t seq_at(const Py_buffer *seqs, uint64_t base, uint32_t position)
{
    return seqs->obj ? ((const uint64_t *)seqs->buf)[position] : base + position;
}

/* Raises ValueError and returns -1 unless all numbers of a column are below `end`. */
static int check_below(const Py_buffer *column, Py_ssize_t end)
{
    for (Py_ssize_t at = 0; at < length_of(column); at++)
        if (number_at(column, (size_t)at) >= end) {
            PyErr_SetString(PyExc_ValueError, "a number is beyond the end of its column");
            return -1;
        }
    return 0;
}

/* The positions must lie in the column of subject numbers, and these below `subjects`; sequences for all of it. */
static int check_positions(const Py_buffer *positions, const Py_buffer *sids, const Py_buffer *seqs, Py_ssize_t subjects)
{
    const uint32_t *position = positions->buf;
    if (check_below(positions, length_of(sids)) < 0 || (seqs && seqs->obj && check_below(positions, length_of(seqs)) < 0))
        return -1;
    for (Py_ssize_t at = 0; at < length_of(positions); at++)
        if (number_at(sids, position[at]) >= (uint64_t)subjects) {
            PyErr_SetString(PyExc_ValueError, "there is no such subject");
            return -1;
        }
    return 0;
}

PyDoc_STRVAR(anchor_doc, "anchor_offsets(offsets, sizes, overhead) -> bytes | None\n\n"
                         "Return every 16th offset, None unless each of the 15 after it is `overhead` and the size of its "
                         "predecessor further on.");

static PyObject *anchor_offsets(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Py_buffer columns[2];
    if (takes("anchor_offsets", count, 3) < 0)
        return NULL;
    uint32_t overhead = (uint32_t)PyLong_AsUnsignedLong(args[2]);
    if (PyErr_Occurred() || open_columns("in", args, columns) < 0)
        return NULL;
    const uint32_t *offsets = columns[0].buf;
    Py_ssize_t size = length_of(columns);
    int adjacent = length_of(columns + 1) == size;
    for (Py_ssize_t at = 1; at < size && adjacent; at++)
        adjacent = at % BLOCK == 0 ||
                   offsets[at] - offsets[at - 1] == number_at(columns + 1, (size_t)at - 1) + overhead;
    PyObject *found = adjacent ? PyBytes_FromStringAndSize(NULL, (size + BLOCK - 1) / BLOCK * 4) : Py_NewRef(Py_None);
    if (found != NULL && adjacent) {
        uint32_t *anchor = (void *)PyBytes_AsString(found);
        for (Py_ssize_t at = 0; at < size; at += BLOCK)
            *anchor++ = offsets[at];
    }
    close_columns(columns, 2);
    return found;
}

PyDoc_STRVAR(sum_doc, "sum_offsets(anchors, sizes, overhead, start, stop) -> bytes\n\n"
                      "Return the offsets from one position to below another, of which `anchor_offsets` kept some.");

static PyObject *sum_offsets(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Py_buffer columns[2];
    if (takes("sum_offsets", count, 5) < 0)
        return NULL;
    uint32_t overhead = (uint32_t)PyLong_AsUnsignedLong(args[2]), offset = 0;
    Py_ssize_t start = PyLong_AsSsize_t(args[3]), stop = PyLong_AsSsize_t(args[4]);
    if (PyErr_Occurred() || open_columns("in", args, columns) < 0)
        return NULL;
    PyObject *found = NULL;
    if (start < 0 || stop < start || stop > length_of(columns + 1) || (stop + BLOCK - 1) / BLOCK > length_of(columns))
        PyErr_SetString(PyExc_ValueError, "there are no such positions");
    else
        found = PyBytes_FromStringAndSize(NULL, (stop - start) * 4);
    if (found != NULL) {
        uint32_t *out = (void *)PyBytes_AsString(found);
        for (Py_ssize_t at = start - start % BLOCK; at < stop; at++) {
            if (at % BLOCK == 0)
                offset = ((const uint32_t *)columns[0].buf)[at / BLOCK];
            if (at >= start)
                *out++ = offset;
            offset += number_at(columns + 1, (size_t)at) + overhead;
        }
    }
    close_columns(columns, 2);
    return found;
}

static inline void add_u32(Buffer *out, uint32_t number)
{
    memcpy(out->data + out->size, &number, 4);
    out->size += 4;
}

/* Room for `count` numbers of 4 bytes, none of them there yet; -1 with MemoryError. */
static int begin_u32(Buffer *out, Py_ssize_t count)
{
    memset(out, 0, sizeof *out);
    if (grow(out, (size_t)count * 4 + 1) == NULL)
        return -1;
    out->size = 0;
    return 0;
}

PyDoc_STRVAR(mark_doc, "mark(marks, numbers)\n\nSet the byte at each of the numbers to 1.");

static PyObject *mark(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer columns[2];
    (void)module;
    if (takes("mark", count, 2) < 0 || open_columns("Bi", args, columns) < 0)
        return NULL;
    if (check_below(columns + 1, columns->len) == 0)
        for (Py_ssize_t at = 0; at < length_of(columns + 1); at++)
            ((char *)columns->buf)[((const uint32_t *)columns[1].buf)[at]] = 1;
    close_columns(columns, 2);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(pick_doc, "pick(sids, dead, mask, start, stop) -> bytes\n\n"
                       "Return the positions in [start, stop) that are not dead and whose number is marked.");

static PyObject *pick(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer columns[3], *sids = columns, *dead = columns + 1, *mask = columns + 2;
    Buffer out = {0};
    (void)module;
    if (takes("pick", count, 5) < 0)
        return NULL;
    Py_ssize_t start = index_of(args[3]), stop = index_of(args[4]);
    if (PyErr_Occurred() || open_columns("nb?b?", args, columns) < 0)
        return NULL;
    if (start < 0 || stop < start || stop > length_of(sids) || (dead->obj && stop > dead->len) || stop > UINT32_MAX)
        PyErr_SetString(PyExc_ValueError, "there are no such positions");
    else if (begin_u32(&out, stop - start) == 0) {
        const char *gone = dead->obj ? dead->buf : NULL, *marks = mask->obj ? mask->buf : NULL;
        for (Py_ssize_t at = start; at < stop; at++) {
            uint32_t sid = marks ? number_at(sids, (size_t)at) : 0, position = (uint32_t)at;
            int found = !(gone && gone[at]) && (!marks || (sid < mask->len && marks[sid]));
            memcpy(out.data + out.size, &position, 4);
            out.size += found ? 4 : 0;
        }
    }
    close_columns(columns, 3);
    return PyErr_Occurred() ? NULL : take_buffer(&out);
}

PyDoc_STRVAR(above_doc, "above(counts, listed, end, limit) -> tuple[bytes, int]\n\n"
                        "Return those of the listed numbers, or of all below `end`, whose count is above the limit, "
                        "and the sum of all the counts.");

static PyObject *above(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer columns[2], *counts = columns, *listed = columns + 1;
    Buffer out = {0};
    uint64_t total = 0;
    (void)module;
    if (takes("above", count, 4) < 0)
        return NULL;
    Py_ssize_t end = PyLong_AsSsize_t(args[2]);
    uint64_t limit = unsigned_of(args[3]);
    if (PyErr_Occurred() || open_columns("qi?", args, columns) < 0)
        return NULL;
    Py_ssize_t many = listed->obj ? length_of(listed) : end;
    if (listed->obj ? check_below(listed, length_of(counts)) < 0 : end < 0 || end > length_of(counts)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "there are not as many counts");
    } else if (begin_u32(&out, many) == 0)
        for (Py_ssize_t at = 0; at < many; at++) {
            uint32_t sid = listed->obj ? ((const uint32_t *)listed->buf)[at] : (uint32_t)at;
            uint64_t number = ((const uint64_t *)counts->buf)[sid];
            total += number;
            if (number > limit)
                add_u32(&out, sid);
        }
    close_columns(columns, 2);
    return PyErr_Occurred() ? NULL : Py_BuildValue("(NK)", take_buffer(&out), total);
}

PyDoc_STRVAR(take_out_doc, "take_out(counts, lasts, dead, sids, sizes, positions, seqs, base) -> (size, emptied, uncovered)\n\n"
                           "Count removed messages out of their subjects, mark them in `dead` where that is given, and "
                           "return their accounted size, the subjects "
                           "without any left, and the others whose newest message is among them.");

static PyObject *take_out(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer columns[7], *dead = columns + 2, *sids = columns + 3, *sizes = columns + 4, *positions = columns + 5;
    Py_buffer *seqs = columns + 6;
    Buffer emptied = {0}, uncovered = {0};
    uint64_t size = 0;
    (void)module;
    uint64_t base = takes("take_out", count, 8) < 0 ? 0 : PyLong_AsUnsignedLongLong(args[7]);
    if (PyErr_Occurred() || open_columns("QQB?nniq?", args, columns) < 0)
        return NULL;
    uint64_t *counts = columns[0].buf, *lasts = columns[1].buf;
    const uint32_t *position = positions->buf;
    Py_ssize_t many = length_of(positions), subjects = length_of(columns);
    subjects = subjects < length_of(columns + 1) ? subjects : length_of(columns + 1);
    int failed = check_positions(positions, sids, seqs, subjects) < 0 || check_below(positions, length_of(sizes)) < 0 ||
                 (dead->obj && check_below(positions, dead->len) < 0);
    if (!failed && begin_u32(&emptied, many) == 0 && begin_u32(&uncovered, many) == 0) {
        for (Py_ssize_t at = 0; at < many; at++) {
            counts[number_at(sids, position[at])]--;
            size += number_at(sizes, position[at]);
            if (dead->obj)
                ((char *)dead->buf)[position[at]] = 1;
        }
        for (Py_ssize_t at = 0; at < many; at++) {
            uint32_t sid = number_at(sids, position[at]);
            if (counts[sid] && lasts[sid] == seq_at(seqs, base, position[at]))
                add_u32(&uncovered, sid);
            else if (!counts[sid] && lasts[sid]) {
                lasts[sid] = 0;
                add_u32(&emptied, sid);
            }
        }
    }
    close_columns(columns, 7);
    if (!PyErr_Occurred())
        return Py_BuildValue("(KNN)", size, take_buffer(&emptied), take_buffer(&uncovered));
    PyMem_Free(emptied.data);
    return NULL;
}

PyDoc_STRVAR(surplus_doc, "surplus(counts, sids, positions, per_subject) -> bytes\n\n"
                          "Return the first positions of each subject, as many as its count is above the limit.");

static PyObject *surplus(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer columns[3], *sids = columns + 1, *positions = columns + 2;
    Buffer out = {0};
    (void)module;
    uint64_t limit = takes("surplus", count, 4) < 0 ? 0 : PyLong_AsUnsignedLongLong(args[3]);
    if (PyErr_Occurred() || open_columns("Qni", args, columns) < 0)
        return NULL;
    uint64_t *counts = columns[0].buf;
    const uint32_t *position = positions->buf;
    if (check_positions(positions, sids, NULL, length_of(columns)) == 0 && begin_u32(&out, length_of(positions)) == 0) {
        for (Py_ssize_t at = 0; at < length_of(positions); at++)
            if (counts[number_at(sids, position[at])] > limit) {
                counts[number_at(sids, position[at])]--;
                add_u32(&out, position[at]);
            }
        for (size_t at = 0; at < out.size / 4; at++)
            counts[number_at(sids, ((uint32_t *)(void *)out.data)[at])]++;
    }
    close_columns(columns, 3);
    return PyErr_Occurred() ? NULL : take_buffer(&out);
}

PyDoc_STRVAR(count_down_doc, "count_down(keys, counts, sids, positions)\n\n"
                             "Subtract 1 from the count of a subject, among ascending keys, for each of its positions.");

static PyObject *count_down(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer columns[4], *sids = columns + 2, *positions = columns + 3;
    (void)module;
    if (takes("count_down", count, 4) < 0 || open_columns("iIni", args, columns) < 0)
        return NULL;
    const uint32_t *keys = columns[0].buf, *position = positions->buf;
    Py_ssize_t total = length_of(columns);
    if (total > length_of(columns + 1))
        PyErr_SetString(PyExc_ValueError, "there must be as many counts as keys");
    else if (check_below(positions, length_of(sids)) == 0)
        for (Py_ssize_t at = 0; at < length_of(positions); at++) {
            uint32_t sid = number_at(sids, position[at]);
            Py_ssize_t low = 0, high = total;
            while (low < high) {
                Py_ssize_t middle = (low + high) / 2;
                if (keys[middle] < sid)
                    low = middle + 1;
                else
                    high = middle;
            }
            if (low < total && keys[low] == sid)
                ((uint32_t *)columns[1].buf)[low]--;
        }
    close_columns(columns, 4);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(unseen_doc, "unseen(seen, sids, positions) -> bytes\n\n"
                         "Return the last position of each subject that is not marked, and mark it.");

static PyObject *unseen(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer columns[3], *seen = columns, *sids = columns + 1, *positions = columns + 2;
    (void)module;
    if (takes("unseen", count, 3) < 0 || open_columns("Bni", args, columns) < 0)
        return NULL;
    PyObject *found = NULL;
    Py_ssize_t many = length_of(positions), first = many;
    uint32_t *out = PyMem_Malloc((size_t)many * 4 + 1);
    const uint32_t *position = positions->buf;
    if (out == NULL)
        PyErr_NoMemory();
    else if (check_positions(positions, sids, NULL, seen->len) == 0) {
        for (Py_ssize_t at = many; at-- > 0;) {
            char *mark = (char *)seen->buf + number_at(sids, position[at]);
            if (!*mark)
                out[--first] = position[at];
            *mark = 1;
        }
        found = PyBytes_FromStringAndSize((const char *)(out + first), (many - first) * 4);
    }
    PyMem_Free(out);
    close_columns(columns, 3);
    return found;
}

PyDoc_STRVAR(sequences_doc, "sequences(positions, seqs, base) -> bytes\n\nReturn the sequences at positions.");

static PyObject *sequences(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer columns[2], *positions = columns, *seqs = columns + 1;
    PyObject *found = NULL;
    (void)module;
    uint64_t base = takes("sequences", count, 3) < 0 ? 0 : PyLong_AsUnsignedLongLong(args[2]);
    if (PyErr_Occurred() || open_columns("iq?", args, columns) < 0)
        return NULL;
    Py_ssize_t many = length_of(positions);
    if (!seqs->obj || check_below(positions, length_of(seqs)) == 0)
        found = PyBytes_FromStringAndSize(NULL, many * 8);
    if (found != NULL) {
        char *out = PyBytes_AsString(found);
        for (Py_ssize_t at = 0; at < many; at++) {
            uint64_t seq = seq_at(seqs, base, ((const uint32_t *)positions->buf)[at]);
            memcpy(out + 8 * at, &seq, 8);
        }
    }
    close_columns(columns, 2);
    return found;
}

/* Sorts positions by 16 bits of their subject numbers; those with the same ones stay in their order. */
static void sort_by(const Py_buffer *sids, int shift, const uint32_t *from, uint32_t *to, size_t many, size_t *starts)
{
    memset(starts, 0, sizeof(size_t) * 65537);
    for (size_t at = 0; at < many; at++)
        starts[(number_at(sids, at) >> shift & UINT16_MAX) + 1]++;
    for (size_t key = 0; key < 65536; key++)
        starts[key + 1] += starts[key];
    for (size_t at = 0; at < many; at++) {
        uint32_t position = from ? from[at] : (uint32_t)at;
        to[starts[number_at(sids, position) >> shift & UINT16_MAX]++] = position;
    }
}

PyDoc_STRVAR(order_doc, "order(sids) -> bytes\n\nReturn the positions sorted by subject number, then by position.");

static PyObject *order(PyObject *module, PyObject *column)
{
    Py_buffer sids;
    (void)module;
    if (open_columns("n", &column, &sids) < 0)
        return NULL;
    size_t many = (size_t)length_of(&sids);
    PyObject *found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)many * 4);
    uint32_t *half = PyMem_Malloc(many * 4 + 1);
    size_t *starts = PyMem_Malloc(sizeof(size_t) * 65537);
    if (found == NULL || half == NULL || starts == NULL) {
        Py_CLEAR(found);
        PyErr_NoMemory();
    } else {
        sort_by(&sids, 0, NULL, half, many, starts);
        sort_by(&sids, 16, half, (uint32_t *)(void *)PyBytes_AsString(found), many, starts);
    }
    PyMem_Free(half);
    PyMem_Free(starts);
    PyBuffer_Release(&sids);
    return found;
}

PyDoc_STRVAR(renumber_doc, "renumber(sids, moves) -> bytes\n\n"
                           "Return the new numbers of subjects; those beyond the moves stay the number of none.");

static PyObject *renumber(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer columns[2];
    (void)module;
    if (takes("renumber", count, 2) < 0 || open_columns("ni", args, columns) < 0)
        return NULL;
    Py_ssize_t many = length_of(columns);
    PyObject *found = PyBytes_FromStringAndSize(NULL, many * 4);
    if (found != NULL) {
        uint32_t *out = (void *)PyBytes_AsString(found);
        for (Py_ssize_t at = 0; at < many; at++) {
            uint32_t sid = number_at(columns, (size_t)at);
            out[at] = sid < length_of(columns + 1) ? ((const uint32_t *)columns[1].buf)[sid] : GONE;
        }
    }
    close_columns(columns, 2);
    return found;
}

static inline uint8_t *put_word(uint8_t *at, uint32_t word)
{
    for (int byte = 0; byte < 4; byte++)
        *at++ = (uint8_t)(word >> 8 * byte);
    return at;
}

PyDoc_STRVAR(pack_doc, "pack_column(column) -> PackedColumn | None\n\n"
                       "Return the numbers of a column in as few bits each as they need, None where that is 32.");

static PyObject *pack_column(PyObject *module, PyObject *object)
{
    (void)module;
    Py_buffer column;
    if (read_column(object, 4, &column) < 0)
        return NULL;
    const uint32_t *numbers = column.buf;
    Py_ssize_t count = column.len / 4;
    uint32_t low = count ? numbers[0] : 0, high = low;
    for (Py_ssize_t at = 1; at < count; at++) {
        low = numbers[at] < low ? numbers[at] : low;
        high = numbers[at] > high ? numbers[at] : high;
    }
    unsigned bits = 0, filled = 0;
    while (bits < 32 && (high - low) >> bits)
        bits++;
    allocfunc allocate = (allocfunc)PyType_GetSlot(packed_type, Py_tp_alloc);
    PackedColumn *packed = bits < 32 ? (PackedColumn *)allocate(packed_type, 0) : NULL;
    uint8_t *out = packed ? PyMem_Malloc((size_t)count * bits / 8 + 16) : NULL;
    if (out != NULL) {
        *packed = (PackedColumn){packed->ob_base, count, low, (uint32_t)(((uint64_t)1 << bits) - 1), bits, out};
        uint64_t left = 0;
        for (Py_ssize_t at = 0; at < count; at++) {
            left |= (uint64_t)(numbers[at] - low) << filled;
            filled += bits;
            if (filled >= 32) {
                out = put_word(out, (uint32_t)left);
                left >>= 32;
                filled -= 32;
            }
        }
        put_word(put_word(put_word(out, (uint32_t)left), (uint32_t)(left >> 32)), 0);
    } else if (bits < 32) {
        Py_CLEAR(packed);
        PyErr_NoMemory();
    }
    PyBuffer_Release(&column);
    return bits < 32 ? (PyObject *)packed : Py_NewRef(Py_None);
}

static Py_ssize_t packed_length(PyObject *object)
{
    return ((PackedColumn *)object)->count;
}

static PyObject *packed_item(PyObject *object, Py_ssize_t at)
{
    const PackedColumn *column = (PackedColumn *)object;
    if (at >= 0 && at < column->count)
        return PyLong_FromUnsignedLong(packed_at(column, at));
    PyErr_SetString(PyExc_IndexError, "there is no such position");
    return NULL;
}

static PyObject *packed_subscript(PyObject *object, PyObject *key)
{
    const PackedColumn *column = (PackedColumn *)object;
    Py_ssize_t start, stop, step;
    if (!PySlice_Check(key)) {
        start = PyNumber_AsSsize_t(key, PyExc_IndexError);
        return start == -1 && PyErr_Occurred() ? NULL : packed_item(object, start < 0 ? start + column->count : start);
    }
    if (PySlice_Unpack(key, &start, &stop, &step) < 0)
        return NULL;
    Buffer out;
    Py_ssize_t count = PySlice_AdjustIndices(column->count, &start, &stop, step);
    if (begin_u32(&out, count) < 0)
        return NULL;
    for (; count--; start += step)
        add_u32(&out, packed_at(column, start));
    return take_column(&out, 'I');
}

PyDoc_STRVAR(index_doc, "index(number, start)\n\nReturn the first position of a number from one on; raises ValueError.");

static PyObject *packed_index(PyObject *object, PyObject *args)
{
    const PackedColumn *column = (PackedColumn *)object;
    unsigned long number;
    Py_ssize_t start;
    if (!PyArg_ParseTuple(args, "kn", &number, &start))
        return NULL;
    for (Py_ssize_t at = start < 0 ? 0 : start; at < column->count; at++)
        if (packed_at(column, at) == number)
            return PyLong_FromSsize_t(at);
    PyErr_SetString(PyExc_ValueError, "the number is not in the column");
    return NULL;
}

PyDoc_STRVAR(total_doc, "total() -> int\n\nReturn the sum of the numbers.");

static PyObject *packed_total(PyObject *object, PyObject *none)
{
    const PackedColumn *column = (PackedColumn *)object;
    uint64_t total = 0;
    (void)none;
    for (Py_ssize_t at = 0; at < column->count; at++)
        total += packed_at(column, at);
    return PyLong_FromUnsignedLongLong(total);
}

static void packed_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(((PackedColumn *)object)->data);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef packed_methods[] = {
    {"index", packed_index, METH_VARARGS, index_doc},
    {"total", packed_total, METH_NOARGS, total_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot packed_slots[] = {
    {Py_tp_dealloc, packed_free},
    {Py_tp_methods, packed_methods},
    {Py_sq_length, packed_length},
    {Py_sq_item, packed_item},
    {Py_mp_length, packed_length},
    {Py_mp_subscript, packed_subscript},
    {0, NULL},
};

static PyType_Spec packed_specification = {
    .name = "natsctl.native._native.PackedColumn",
    .basicsize = sizeof(PackedColumn),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = packed_slots,
};

int columns_init(PyObject *module)
{
    packed_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &packed_specification, NULL);
    return packed_type == NULL ? -1 : PyModule_AddObjectRef(module, "PackedColumn", (PyObject *)packed_type);
}

PyMethodDef column_methods[] = {
    {"above", (PyCFunction)(void (*)(void))above, METH_FASTCALL, above_doc},
    {"anchor_offsets", (PyCFunction)(void (*)(void))anchor_offsets, METH_FASTCALL, anchor_doc},
    {"count_down", (PyCFunction)(void (*)(void))count_down, METH_FASTCALL, count_down_doc},
    {"mark", (PyCFunction)(void (*)(void))mark, METH_FASTCALL, mark_doc},
    {"matching", (PyCFunction)(void (*)(void))matching, METH_FASTCALL, matching_doc},
    {"pack_column", pack_column, METH_O, pack_doc},
    {"order", order, METH_O, order_doc},
    {"pick", (PyCFunction)(void (*)(void))pick, METH_FASTCALL, pick_doc},
    {"renumber", (PyCFunction)(void (*)(void))renumber, METH_FASTCALL, renumber_doc},
    {"sequences", (PyCFunction)(void (*)(void))sequences, METH_FASTCALL, sequences_doc},
    {"sum_offsets", (PyCFunction)(void (*)(void))sum_offsets, METH_FASTCALL, sum_doc},
    {"surplus", (PyCFunction)(void (*)(void))surplus, METH_FASTCALL, surplus_doc},
    {"take_out", (PyCFunction)(void (*)(void))take_out, METH_FASTCALL, take_out_doc},
    {"tally", (PyCFunction)(void (*)(void))tally, METH_FASTCALL, tally_doc},
    {"unseen", (PyCFunction)(void (*)(void))unseen, METH_FASTCALL, unseen_doc},
    {NULL, NULL, 0, NULL},
};
