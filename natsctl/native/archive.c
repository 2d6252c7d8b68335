/* Archives of snapshots: see natsctl/api/archive. */

#include "native.h"

PyMethodDef archive_methods[] = {
    {NULL, NULL, 0, NULL},
};
