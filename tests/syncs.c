/* Counts a process's calls of fsync and fdatasync, to be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
static int calls;
int syncs(void) { return __atomic_load_n(&calls, __ATOMIC_SEQ_CST); }
static int count(const char *name, int fd) {
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
}
int fsync(int fd) { return count("fsync", fd); }
int fdatasync(int fd) { return count("fdatasync", fd); }
