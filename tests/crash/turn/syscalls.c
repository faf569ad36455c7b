/* Preloaded into a process under test: once armed, it numbers the process's writes to files below a directory, logs
 * them, and ends the process right before a given one, as a kill there would.
 *
 * A record: one letter, path, 0, offset, length, data; the numbers are 64 bits, little-endian.
 *   W write   T truncate to offset   S sync   U unlink   R rename to data
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static const char *watched;
static long calls, stop_before;
static int log_fd = -1;
static int skips_syncs;

#define NEXT(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

/* Begin to count. stop: 0 for never; log: a path, or NULL. */
void arm(const char *watch, long stop, const char *log) {
    watched = strdup(watch);
    calls = 0;
    stop_before = stop;
    if (log) log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* From now on make no sync: they decide what a loss of power leaves, and a kill leaves all that was written. They are
 * counted and logged as before. */
void skip_syncs(void) { skips_syncs = 1; }

static void record(char op, const char *path, uint64_t offset, uint64_t length, const void *data) {
    if (!watched || strncmp(path, watched, strlen(watched))) return;
    pthread_mutex_lock(&one);
    if (++calls == stop_before) _exit(77);
    if (log_fd >= 0) {
        NEXT(write)(log_fd, &op, 1);
        NEXT(write)(log_fd, path, strlen(path) + 1);
        NEXT(write)(log_fd, &offset, 8);
        NEXT(write)(log_fd, &length, 8);
        if (length) NEXT(write)(log_fd, data, length);
    }
    pthread_mutex_unlock(&one);
}

static void record_fd(char op, int fd, uint64_t offset, uint64_t length, const void *data) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return;
    path[n] = 0;
    record(op, path, offset, length, data);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { record_fd('W', fd, at, n, data); return NEXT(pwrite)(fd, data, n, at); }
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) { record_fd('W', fd, at, n, data); return NEXT(pwrite64)(fd, data, n, at); }
ssize_t write(int fd, const void *data, size_t n) { record_fd('W', fd, lseek(fd, 0, SEEK_CUR), n, data); return NEXT(write)(fd, data, n); }
int ftruncate(int fd, off_t n) { record_fd('T', fd, n, 0, 0); return NEXT(ftruncate)(fd, n); }
int ftruncate64(int fd, off64_t n) { record_fd('T', fd, n, 0, 0); return NEXT(ftruncate64)(fd, n); }
int fsync(int fd) { record_fd('S', fd, 0, 0, 0); return skips_syncs ? 0 : NEXT(fsync)(fd); }
int fdatasync(int fd) { record_fd('S', fd, 0, 0, 0); return skips_syncs ? 0 : NEXT(fdatasync)(fd); }
int unlink(const char *path) { record('U', path, 0, 0, 0); return NEXT(unlink)(path); }
int rename(const char *from, const char *to) { record('R', from, 0, strlen(to), to); return NEXT(rename)(from, to); }
