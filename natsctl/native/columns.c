/* Questions about whole columns of a stream's index: see natsctl/store/filters.py and view.py. */

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

PyMethodDef column_methods[] = {
    {"matching", (PyCFunction)(void (*)(void))matching, METH_FASTCALL, matching_doc},
    {NULL, NULL, 0, NULL},
};
