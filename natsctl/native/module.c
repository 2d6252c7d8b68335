/* The module `natsctl.native._native`: its functions, gathered from the parts. */

#include "native.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

PyDoc_STRVAR(trim_doc, "trim_memory()\n\nReturn the free memory of the heap to the system, if the C library can.");

static PyObject *trim_memory(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    return Py_NewRef(Py_None);
}

static PyMethodDef memory_methods[] = {{"trim_memory", trim_memory, METH_NOARGS, trim_doc}, {NULL, NULL, 0, NULL}};

static PyMethodDef *const parts[] = {archive_methods, column_methods,   frame_methods,  memory_methods,
                                     message_methods, protocol_methods, reading_methods};

static int execute(PyObject *module)
{
    for (size_t part = 0; part < sizeof parts / sizeof *parts; part++)
        if (PyModule_AddFunctions(module, parts[part]) < 0)
            return -1;
    if (archive_init() < 0 || columns_init(module) < 0 || frames_init() < 0 || reading_init(module) < 0)
        return -1;
    return committer_init(module);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Loops over messages in C. Each function has its specification in Python: see natsctl/native/__init__.py.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
