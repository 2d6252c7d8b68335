/* Questions about whole columns of a stream's index: see natsctl/store/filters.py and columns.py. */

#include "native.h"

typedef struct {
    const char *at, *end;
} Text;

/* Whether a subject matches a pattern: `*` is one token of at least one byte, a final `>` all the rest, if any. */
static int matches(Text pattern, Text subject)
{
    const char *p = pattern.at, *s = subject.at;
    for (;;) {
        const char *dot = memchr(p, '.', (size_t)(pattern.end - p));
        const char *stop = dot ? dot : pattern.end;
        if (stop - p == 1 && *p == '*') {
            const char *token = s;
            while (s < subject.end && *s != '.')
                s++;
            if (s == token)
                return 0;
        } else if (stop - p == 1 && *p == '>' && dot == NULL) {
            return s < subject.end;
        } else {
            if (subject.end - s < stop - p || memcmp(s, p, (size_t)(stop - p)))
                return 0;
            s += stop - p;
        }
        if (dot == NULL)
            return s == subject.end;
        if (s == subject.end || *s != '.')
            return 0;
        p = dot + 1;
        s++;
    }
}

static int read_text(PyObject *object, Text *text)
{
    Py_ssize_t size;
    text->at = bytes_of(object, &size);
    if (text->at == NULL)
        return -1;
    text->end = text->at + size;
    return 0;
}

/* Adds the numbers in [start, end) of the names that match one of `count` patterns. */
static int add_matching(Buffer *out, PyObject *names, Py_ssize_t start, Py_ssize_t end, const Text *patterns,
                        Py_ssize_t count)
{
    for (Py_ssize_t number = start; number < end; number++) {
        PyObject *name = PyList_GetItem(names, number);
        Text subject;
        if (name == NULL || read_text(name, &subject) < 0)
            return -1;
        Py_ssize_t pattern = 0;
        while (pattern < count && !matches(patterns[pattern], subject))
            pattern++;
        if (pattern < count) {
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
    Text *patterns = PyMem_Malloc(sizeof(Text) * (size_t)(number + 1));
    if (patterns == NULL)
        return PyErr_NoMemory();
    Buffer out = {0};
    int failed = 0;
    for (Py_ssize_t at = 0; at < number && !failed; at++)
        failed = read_text(PyTuple_GetItem(args[3], at), &patterns[at]) < 0;
    failed = failed || add_matching(&out, args[0], start, end, patterns, number) < 0;
    PyMem_Free(patterns);
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

PyDoc_STRVAR(narrow_doc, "narrow(column) -> bytes | None\n\n"
                         "Return the numbers of a column in one or two bytes each, None where one needs more.");

static PyObject *narrow(PyObject *module, PyObject *object)
{
    (void)module;
    Py_buffer column;
    if (read_column(object, 4, &column) < 0)
        return NULL;
    const uint32_t *numbers = column.buf;
    Py_ssize_t size = column.len / 4;
    uint32_t bits = 0;
    for (Py_ssize_t at = 0; at < size; at++)
        bits |= numbers[at];
    int width = bits > UINT8_MAX ? 2 : 1;
    PyObject *found = bits > UINT16_MAX ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(NULL, size * width);
    if (found != NULL && found != Py_None) {
        void *out = PyBytes_AsString(found);
        for (Py_ssize_t at = 0; at < size; at++)
            if (width == 1)
                ((uint8_t *)out)[at] = (uint8_t)numbers[at];
            else
                ((uint16_t *)out)[at] = (uint16_t)numbers[at];
    }
    PyBuffer_Release(&column);
    return found;
}

#define BLOCK 16 /* offsets of which the first is kept whole */

PyDoc_STRVAR(split_doc, "split_offsets(column) -> tuple[bytes, bytes] | None\n\n"
                        "Return every 16th offset and the lower halves of all; None where 16 reach over 64 KiB.");

static PyObject *split_offsets(PyObject *module, PyObject *object)
{
    (void)module;
    Py_buffer column;
    if (read_column(object, 4, &column) < 0)
        return NULL;
    const uint32_t *offsets = column.buf;
    Py_ssize_t size = column.len / 4;
    int fits = 1;
    for (Py_ssize_t at = 0; at < size && fits; at++) {
        uint32_t anchor = offsets[at - at % BLOCK];
        fits = offsets[at] >= anchor && offsets[at] - anchor <= UINT16_MAX;
    }
    if (!fits) {
        PyBuffer_Release(&column);
        return Py_NewRef(Py_None);
    }
    PyObject *anchors = PyBytes_FromStringAndSize(NULL, (size + BLOCK - 1) / BLOCK * 4);
    PyObject *lows = PyBytes_FromStringAndSize(NULL, size * 2);
    if (anchors != NULL && lows != NULL) {
        uint32_t *anchor = (void *)PyBytes_AsString(anchors);
        uint16_t *low = (void *)PyBytes_AsString(lows);
        for (Py_ssize_t at = 0; at < size; at++)
            low[at] = (uint16_t)offsets[at];
        for (Py_ssize_t at = 0; at < size; at += BLOCK)
            *anchor++ = offsets[at];
    }
    PyBuffer_Release(&column);
    return Py_BuildValue("(NN)", anchors, lows);
}

PyDoc_STRVAR(join_doc, "join_offsets(anchors, lows, start, stop) -> bytes\n\n"
                       "Return the offsets from one position to below another that were split.");

static PyObject *join_offsets(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (takes("join_offsets", count, 4) < 0)
        return NULL;
    Py_ssize_t start = PyLong_AsSsize_t(args[2]), stop = PyLong_AsSsize_t(args[3]);
    Py_buffer anchors, lows;
    if (PyErr_Occurred() || read_column(args[0], 4, &anchors) < 0)
        return NULL;
    if (read_column(args[1], 2, &lows) < 0) {
        PyBuffer_Release(&anchors);
        return NULL;
    }
    PyObject *found = NULL;
    if (start < 0 || stop < start || stop > lows.len / 2 || (stop + BLOCK - 1) / BLOCK > anchors.len / 4)
        PyErr_SetString(PyExc_ValueError, "there are no such positions");
    else
        found = PyBytes_FromStringAndSize(NULL, (stop - start) * 4);
    if (found != NULL) {
        const uint32_t *anchor = anchors.buf;
        const uint16_t *low = lows.buf;
        uint32_t *out = (void *)PyBytes_AsString(found);
        for (Py_ssize_t at = start; at < stop; at++)
            *out++ = anchor[at / BLOCK] + (uint16_t)(low[at] - anchor[at / BLOCK]);
    }
    PyBuffer_Release(&lows);
    PyBuffer_Release(&anchors);
    return found;
}

PyMethodDef column_methods[] = {
    {"join_offsets", (PyCFunction)(void (*)(void))join_offsets, METH_FASTCALL, join_doc},
    {"matching", (PyCFunction)(void (*)(void))matching, METH_FASTCALL, matching_doc},
    {"narrow", narrow, METH_O, narrow_doc},
    {"split_offsets", split_offsets, METH_O, split_doc},
    {"tally", (PyCFunction)(void (*)(void))tally, METH_FASTCALL, tally_doc},
    {NULL, NULL, 0, NULL},
};
