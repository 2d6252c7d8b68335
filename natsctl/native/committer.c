/* Threads that write and sync without the interpreter: see natsctl/server/committer.py.
 *
 * A job is a few writes, each of bytes to a descriptor at an offset, synced or not. The loop thread submits jobs and
 * collects finished ones; only it touches Python objects. A thread runs one job at a time and its writes in order; the
 * first failure ends the job. `run` does several in the loop thread. Jobs go to the thread that was busy last, which wakes in half the time of one that has
 * slept long. The first job on the list of finished ones writes a byte to the wake descriptor, which the loop watches.
 */

#include "native.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WRITES = 2, MAX_THREADS = 64 };
enum { DONE = 0, WRITE_FAILED = 1, SYNC_FAILED = 2 };

typedef struct {
    int fd, sync;
    const char *data;
    size_t size;
    int64_t offset;
} Write;

typedef struct Job {
    struct Job *next;
    PyObject *token, *writes; /* `writes` keeps the bytes alive */
    Write write[MAX_WRITES];
    int count, outcome, error;
    double seconds;
} Job;

typedef struct {
    Job *first, **last;
} Queue;

struct Committer;

typedef struct {
    struct Committer *owner;
    pthread_t thread;
    pthread_cond_t wake;
    int called;
} Worker;

typedef struct Committer {
    PyObject_HEAD
    pthread_mutex_t lock;
    Worker workers[MAX_THREADS];
    Worker *idle[MAX_THREADS]; /* the one that was busy last at the end */
    int running, idle_count, stopping, wake_fd, ready;
    Queue todo, done;
} Committer;

static void empty_queue(Queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

static void put_last(Queue *queue, Job *job)
{
    job->next = NULL;
    *queue->last = job;
    queue->last = &job->next;
}

static Job *take_first(Queue *queue)
{
    Job *job = queue->first;
    if (job != NULL && (queue->first = job->next) == NULL)
        queue->last = &queue->first;
    return job;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int write_whole(const Write *write)
{
    size_t done = 0;
    if (write->fd < 0)
        return EBADF;
    while (done < write->size) {
        ssize_t wrote = pwrite(write->fd, write->data + done, write->size - done, (off_t)(write->offset + (int64_t)done));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return errno;
        if (wrote == 0)
            return EIO;
        done += (size_t)wrote;
    }
    return 0;
}

/* Returns the number of a file's names, or -1 with errno. Linux is not asked for the times: from 6.13 on a file whose
 * times were asked for gets a new time with the next write, and its inode has to be written once more. */
static int names_of(int fd)
{
#ifdef STATX_NLINK
    struct statx asked;
    if (!statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &asked) && asked.stx_mask & STATX_NLINK)
        return asked.stx_nlink > 0;
#endif
    struct stat file;
    return fstat(fd, &file) < 0 ? -1 : file.st_nlink > 0;
}

/* Data synced into a file without a name would be lost with the process: that is a failure. */
static int sync_file(int fd)
{
    int names = names_of(fd);
    if (names < 0)
        return errno;
    if (!names)
        return ENOENT;
#ifdef F_FULLFSYNC
    return fcntl(fd, F_FULLFSYNC) < 0 ? errno : 0;
#else
    int failed;
    do
        failed = fdatasync(fd);
    while (failed < 0 && errno == EINTR);
    return failed < 0 ? errno : 0;
#endif
}

static void close_files(const Job *job)
{
    for (int at = 0; at < job->count; at++)
        if (job->write[at].fd >= 0)
            close(job->write[at].fd);
}

static void run_job(Job *job)
{
    double began = now_s();
    for (int at = 0; at < job->count && job->outcome == DONE; at++) {
        if ((job->error = write_whole(&job->write[at])))
            job->outcome = WRITE_FAILED;
        else if (job->write[at].sync && (job->error = sync_file(job->write[at].fd)))
            job->outcome = SYNC_FAILED;
    }
    job->seconds = now_s() - began;
}

/* Puts a finished job on its list, with the lock held, and wakes the loop for the first one. */
static void finish_job(Committer *self, Job *job)
{
    int first = self->done.first == NULL;
    put_last(&self->done, job);
    if (first) {
        ssize_t wrote = write(self->wake_fd, "", 1);
        (void)wrote; /* a full pipe wakes the loop as well */
    }
}

static void *work(void *argument)
{
    Worker *me = argument;
    Committer *self = me->owner;
    pthread_mutex_lock(&self->lock);
    for (;;) {
        Job *job = take_first(&self->todo);
        if (job != NULL) {
            pthread_mutex_unlock(&self->lock);
            run_job(job);
            close_files(job);
            pthread_mutex_lock(&self->lock);
            finish_job(self, job);
            continue;
        }
        if (self->stopping)
            break;
        me->called = 0;
        self->idle[self->idle_count++] = me;
        while (!me->called && !self->stopping)
            pthread_cond_wait(&me->wake, &self->lock);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* Starts one more thread; returns -1 where the system refuses it. */
static int start_worker(Committer *self)
{
    Worker *worker = &self->workers[self->running];
    sigset_t all, before;
    worker->owner = self;
    pthread_cond_init(&worker->wake, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for Python's threads; a new one begins with this mask */
    int failed = pthread_create(&worker->thread, NULL, work, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        pthread_cond_destroy(&worker->wake);
        return -1;
    }
    self->running++;
    return 0;
}

static PyObject *committer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int wake_fd, threads;
    if (keywords != NULL && PyDict_Size(keywords)) {
        PyErr_SetString(PyExc_TypeError, "CommitThreads() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "ii", &wake_fd, &threads))
        return NULL;
    if (threads < 1 || threads > MAX_THREADS)
        return PyErr_Format(PyExc_ValueError, "%d threads, not 1 to %d", threads, MAX_THREADS);
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Committer *self = (Committer *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    pthread_mutex_init(&self->lock, NULL);
    empty_queue(&self->todo);
    empty_queue(&self->done);
    self->ready = 1;
    self->wake_fd = wake_fd;
    while (self->running < threads)
        if (start_worker(self) < 0) {
            Py_DECREF(self);
            PyErr_SetString(PyExc_RuntimeError, "cannot start a thread");
            return NULL;
        }
    return (PyObject *)self;
}

static void free_job(Job *job)
{
    Py_XDECREF(job->token);
    Py_XDECREF(job->writes);
    PyMem_Free(job);
}

/* Reads (fd, data, offset, sync). */
static int read_write(PyObject *from, Write *to)
{
    Py_ssize_t size = 0;
    if (!PyTuple_Check(from) || PyTuple_Size(from) != 4) {
        PyErr_SetString(PyExc_TypeError, "a write is (fd, data, offset, sync)");
        return -1;
    }
    int64_t fd = signed_of(PyTuple_GetItem(from, 0));
    to->data = PyErr_Occurred() ? NULL : bytes_of(PyTuple_GetItem(from, 1), &size);
    to->size = (size_t)size;
    to->offset = signed_of(PyTuple_GetItem(from, 2));
    to->sync = truth_of(PyTuple_GetItem(from, 3));
    if (PyErr_Occurred())
        return -1;
    to->fd = fd < 0 || fd > INT_MAX ? -1 : (int)fd;
    return 0;
}

/* Reads one or two writes into an empty job; -1 with an exception. */
static int read_writes(PyObject *writes, Job *job)
{
    if (!PyTuple_Check(writes)) {
        PyErr_SetString(PyExc_TypeError, "the writes are a tuple");
        return -1;
    }
    Py_ssize_t count = PyTuple_Size(writes);
    if (count < 1 || count > MAX_WRITES) {
        PyErr_Format(PyExc_ValueError, "%zd writes, not 1 to %d", count, MAX_WRITES);
        return -1;
    }
    for (; job->count < count; job->count++)
        if (read_write(PyTuple_GetItem(writes, job->count), &job->write[job->count]) < 0)
            return -1;
    return 0;
}

PyDoc_STRVAR(submit_doc, "submit(token, writes)\n\nRun one or two writes (fd, data, offset, sync) in a thread.");

static PyObject *submit(PyObject *object, PyObject *args)
{
    Committer *self = (Committer *)object;
    PyObject *token, *writes;
    if (!PyArg_ParseTuple(args, "OO!", &token, &PyTuple_Type, &writes))
        return NULL;
    if (!self->running) {
        PyErr_SetString(PyExc_RuntimeError, "the threads are stopped");
        return NULL;
    }
    Job *job = PyMem_Calloc(1, sizeof *job);
    if (job == NULL)
        return PyErr_NoMemory();
    if (read_writes(writes, job) < 0) {
        PyMem_Free(job);
        return NULL;
    }
    /* The job has descriptors of its own: the caller may close his when a thread is left behind. Where there is none to
     * be had, the write fails, one of no bytes too, and Python does it again. */
    for (int at = 0; at < job->count; at++)
        if (job->write[at].fd >= 0)
            job->write[at].fd = fcntl(job->write[at].fd, F_DUPFD_CLOEXEC, 0);
    job->token = Py_NewRef(token);
    job->writes = Py_NewRef(writes);
    Worker *worker = NULL;
    pthread_mutex_lock(&self->lock);
    put_last(&self->todo, job);
    if (self->idle_count) {
        worker = self->idle[--self->idle_count];
        worker->called = 1;
    }
    pthread_mutex_unlock(&self->lock);
    if (worker != NULL)
        pthread_cond_signal(&worker->wake); /* without the lock, which it takes first */
    Py_RETURN_NONE;
}

PyDoc_STRVAR(run_doc, "run(batch, limit_s) -> [(outcome, errno, seconds), ...]\n\n"
                      "Do jobs of one or two writes (fd, data, offset, sync) in this thread, outcomes as of `collect`. "
                      "None begins after `limit_s`; the first always does.");

/* Does jobs in their order; returns how many have begun. */
static Py_ssize_t run_jobs(Job *jobs, Py_ssize_t count, double limit_s)
{
    double took = 0;
    Py_ssize_t at = 0;
    while (at < count && (!at || took < limit_s)) {
        run_job(&jobs[at]);
        took += jobs[at++].seconds;
    }
    return at;
}

static PyObject *outcomes_of(const Job *jobs, Py_ssize_t count)
{
    PyObject *result = PyList_New(count);
    for (Py_ssize_t at = 0; result != NULL && at < count; at++) {
        PyObject *one = Py_BuildValue("iid", jobs[at].outcome, jobs[at].error, jobs[at].seconds);
        if (one == NULL || PyList_SetItem(result, at, one) < 0) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

static PyObject *run(PyObject *object, PyObject *args)
{
    PyObject *batch, *result = NULL;
    double limit_s;
    (void)object;
    if (!PyArg_ParseTuple(args, "Od", &batch, &limit_s))
        return NULL;
    PyObject *kept = PySequence_Tuple(batch); /* the caller's may change meanwhile */
    if (kept == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_Size(kept), done = 0;
    Job *jobs = PyMem_Calloc((size_t)count + 1, sizeof *jobs);
    if (jobs == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t at = 0; at < count && !PyErr_Occurred(); at++)
        read_writes(PyTuple_GetItem(kept, at), &jobs[at]);
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS
        done = run_jobs(jobs, count, limit_s);
        Py_END_ALLOW_THREADS
        result = outcomes_of(jobs, done);
    }
    PyMem_Free(jobs);
    Py_DECREF(kept);
    return result;
}

PyDoc_STRVAR(collect_doc, "collect() -> [(token, outcome, errno, seconds), ...]\n\n"
                          "Return the jobs that have ended; outcome 0: done, 1: a write failed, 2: a sync failed.");

static PyObject *collect(PyObject *object, PyObject *unused)
{
    Committer *self = (Committer *)object;
    (void)unused;
    PyObject *result = PyList_New(0);
    if (result == NULL)
        return NULL;
    pthread_mutex_lock(&self->lock);
    Job *job = self->done.first;
    empty_queue(&self->done);
    pthread_mutex_unlock(&self->lock);
    while (job != NULL) {
        Job *next = job->next;
        PyObject *one = Py_BuildValue("Oiid", job->token, job->outcome, job->error, job->seconds);
        if (one == NULL || PyList_Append(result, one) < 0)
            PyErr_WriteUnraisable(object);
        Py_XDECREF(one);
        free_job(job);
        job = next;
    }
    return result;
}

static void end_threads(Committer *self)
{
    pthread_mutex_lock(&self->lock);
    self->stopping = 1;
    for (int at = 0; at < self->running; at++)
        pthread_cond_signal(&self->workers[at].wake);
    pthread_mutex_unlock(&self->lock);
    while (self->running) {
        Worker *worker = &self->workers[--self->running];
        pthread_join(worker->thread, NULL);
        pthread_cond_destroy(&worker->wake);
    }
}

/* Leaves the threads behind, each to end with its job; the object and the pipe must stay, so one reference is kept. */
static void leave_threads(Committer *self)
{
    pthread_mutex_lock(&self->lock);
    self->stopping = 1;
    for (int at = 0; at < self->running; at++) {
        pthread_cond_signal(&self->workers[at].wake);
        pthread_detach(self->workers[at].thread);
    }
    if (self->running)
        Py_INCREF((PyObject *)self);
    self->running = 0;
    pthread_mutex_unlock(&self->lock);
}

PyDoc_STRVAR(stop_doc, "stop(wait)\n\nEnd the threads after the jobs that they have, or leave those behind that wait for a disk.");

static PyObject *stop(PyObject *object, PyObject *wait)
{
    int joins = PyObject_IsTrue(wait);
    if (joins < 0)
        return NULL;
    if (!joins) {
        leave_threads((Committer *)object);
        Py_RETURN_NONE;
    }
    Py_BEGIN_ALLOW_THREADS
    end_threads((Committer *)object);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void committer_free(PyObject *object)
{
    Committer *self = (Committer *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->ready) {
        Py_BEGIN_ALLOW_THREADS
        end_threads(self);
        Py_END_ALLOW_THREADS
        for (Job *job; (job = take_first(&self->done)) != NULL;)
            free_job(job);
        pthread_mutex_destroy(&self->lock);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"run", run, METH_VARARGS, run_doc},
    {"submit", submit, METH_VARARGS, submit_doc},
    {"collect", collect, METH_NOARGS, collect_doc},
    {"stop", stop, METH_O, stop_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, committer_new},
    {Py_tp_dealloc, committer_free},
    {Py_tp_methods, methods},
    {Py_tp_doc, "CommitThreads(wake_fd, threads)\n\nThreads that write and sync; wake_fd is the end of a pipe."},
    {0, NULL},
};

static PyType_Spec specification = {
    .name = "natsctl.native._native.CommitThreads",
    .basicsize = sizeof(Committer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int committer_init(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &specification, NULL);
    int failed = type == NULL || PyModule_AddObjectRef(module, "CommitThreads", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}
