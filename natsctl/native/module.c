/* The module `natsctl.native._native`: its functions, gathered from the parts. */

#include "native.h"

static PyMethodDef *const parts[] = {archive_methods, column_methods,   frame_methods,
                                     message_methods, protocol_methods, reading_methods};

static int execute(PyObject *module)
{
    for (size_t part = 0; part < sizeof parts / sizeof *parts; part++)
        if (PyModule_AddFunctions(module, parts[part]) < 0)
            return -1;
    if (archive_init() < 0 || frames_init() < 0 || reading_init(module) < 0)
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
