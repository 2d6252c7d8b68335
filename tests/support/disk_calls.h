/* The calls by which committer.c reaches a disk, answered by a simulated one: see native_disk.py.
 *
 * The compiler includes this file before each source of the module. The headers come first, as they are; from here on
 * the names below mean the simulated calls. An answer below 0 is an error number.
 */

#include "../../natsctl/native/native.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIMULATED_COPY, SIMULATED_CLOSE, SIMULATED_WRITE, SIMULATED_LINKS, SIMULATED_SYNC };

typedef int64_t (*SimulatedDisk)(int call, int fd, const void *data, size_t size, int64_t offset);

__attribute__((weak, visibility("default"))) SimulatedDisk simulated_disk;

static inline int64_t simulated(int call, int fd, const void *data, size_t size, int64_t offset)
{
    int64_t answer = simulated_disk(call, fd, data, size, offset);
    if (answer >= 0)
        return answer;
    errno = (int)-answer;
    return -1;
}

static inline int simulated_fstat(int fd, struct stat *file)
{
    int64_t links = simulated(SIMULATED_LINKS, fd, NULL, 0, 0);
    memset(file, 0, sizeof *file);
    file->st_nlink = links < 0 ? 0 : (nlink_t)links;
    return links < 0 ? -1 : 0;
}

#ifdef STATX_NLINK
static inline int simulated_statx(int fd, struct statx *file)
{
    struct stat simple;
    memset(file, 0, sizeof *file);
    if (simulated_fstat(fd, &simple) < 0)
        return -1;
    file->stx_mask = STATX_NLINK;
    file->stx_nlink = (uint32_t)simple.st_nlink;
    return 0;
}

#define statx(fd, path, flags, mask, file) simulated_statx(fd, file)
#endif
#define fcntl(fd, command, least) (int)simulated(SIMULATED_COPY, fd, NULL, (command), (least))
#define close(fd) (int)simulated(SIMULATED_CLOSE, fd, NULL, 0, 0)
#define pwrite(fd, data, size, offset) (ssize_t)simulated(SIMULATED_WRITE, fd, data, size, offset)
#define fdatasync(fd) (int)simulated(SIMULATED_SYNC, fd, NULL, 0, 0)
#define fstat(fd, file) simulated_fstat(fd, file)
