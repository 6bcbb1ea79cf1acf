// Put before a mailer by LD_PRELOAD: notes when its queue run reads a directory, when it sorts, and when it would begin.
// Must never change what the mailer does, but for ending it before its first message where LAB_ORDER_STOP asks for that.
//
// The name of a message's file begins with LAB_ORDER_FILES.
//
// Each note is one line of LAB_ORDER_NOTES: PID WHAT NANOSECONDS COUNT TEXT. Nanoseconds are of CLOCK_MONOTONIC. A pair
// of notes is written when its second moment has been taken, so that no writing lies within what they time.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Directories that are open at once; a mailer reads one after the other.
enum { DIRECTORIES_MAX = 16, PATH_BYTES = 4096, LINE_BYTES = PATH_BYTES + 128 };

static char notes[PATH_BYTES];
static char files[64];
static int stop;
static struct directory {
    DIR *stream;
    long long opened;
    long entries;
    char path[PATH_BYTES];
} directories[DIRECTORIES_MAX];

static DIR *(*real_opendir)(const char *);
static struct dirent *(*real_readdir)(DIR *);
static int (*real_closedir)(DIR *);
static void (*real_qsort)(void *, size_t, size_t, int (*)(const void *, const void *));
static int (*real_open)(const char *, int, ...);

static void note(const char *what, long long at, long count, const char *text);

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void find(void) {
    if (real_open)
        return;
    real_opendir = dlsym(RTLD_NEXT, "opendir");
    real_readdir = dlsym(RTLD_NEXT, "readdir");
    real_closedir = dlsym(RTLD_NEXT, "closedir");
    real_qsort = dlsym(RTLD_NEXT, "qsort");
    real_open = dlsym(RTLD_NEXT, "open");
}

// The mailer empties its environment soon after its start: what stands there is copied before.
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LAB_ORDER_NOTES"), *prefix = getenv("LAB_ORDER_FILES");
    find();
    snprintf(notes, sizeof notes, "%s", path ? path : "");
    snprintf(files, sizeof files, "%s", prefix ? prefix : "");
    stop = files[0] && getenv("LAB_ORDER_STOP");
    note("start", now(), 0, "");
}

// Opens the file each time: the mailer closes descriptors that it does not know.
static void note(const char *what, long long at, long count, const char *text) {
    char line[LINE_BYTES];
    int saved = errno, length, file;
    if (!notes[0])
        return;
    length = snprintf(line, sizeof line, "%d %s %lld %ld %s\n", (int)getpid(), what, at, count, text);
    file = real_open(notes, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file >= 0) {
        if (length > 0 && write(file, line, (size_t)length) != length)
            abort(); // half a note would be believed
        close(file);
    }
    errno = saved;
}

static struct directory *held(DIR *stream) {
    for (int at = 0; at < DIRECTORIES_MAX; at++)
        if (directories[at].stream == stream)
            return &directories[at];
    return NULL;
}

DIR *opendir(const char *path) {
    find();
    long long at = now();
    DIR *stream = real_opendir(path);
    struct directory *place = stream ? held(NULL) : NULL;
    if (place) {
        // The mailer says `.`: the kernel knows the rest.
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd(stream));
        ssize_t length = readlink(link, place->path, sizeof place->path - 1);
        place->path[length > 0 ? length : 0] = 0;
        place->stream = stream;
        place->entries = 0;
        place->opened = at;
    }
    return stream;
}

static int is_message(const char *name) {
    return strncmp(name, files, strlen(files)) == 0;
}

static void count(DIR *stream, const struct dirent *entry) {
    struct directory *place = held(stream);
    if (place && is_message(entry->d_name))
        place->entries++;
}

struct dirent *readdir(DIR *stream) {
    find();
    struct dirent *entry = real_readdir(stream);
    if (entry)
        count(stream, entry);
    return entry;
}

// Of one layout with `readdir` where `long` has 64 bits; a program may be built to call this one.
struct dirent64 *readdir64(DIR *stream) {
    _Static_assert(sizeof(struct dirent64) == sizeof(struct dirent), "one layout");
    return (struct dirent64 *)readdir(stream);
}

int closedir(DIR *stream) {
    find();
    struct directory *place = held(stream);
    int result = real_closedir(stream);
    if (place) {
        long long at = now();
        place->stream = NULL;
        note("open", place->opened, 0, place->path);
        note("close", at, place->entries, place->path);
    }
    return result;
}

void qsort(void *base, size_t count, size_t size, int (*compare)(const void *, const void *)) {
    find();
    long long from = now();
    real_qsort(base, count, size, compare);
    long long to = now();
    note("sort", from, (long)count, "");
    note("sorted", to, (long)count, "");
}

// The first message is begun when its file is opened for writing, too.
static void watch(const char *path, int flags) {
    if (!stop || (flags & O_ACCMODE) != O_RDWR)
        return;
    const char *name = strrchr(path, '/');
    if (!is_message(name ? name + 1 : path))
        return;
    note("begin", now(), 0, path);
    _exit(0);
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    find();
    watch(path, flags);
    return real_open(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open(path, flags | O_LARGEFILE, mode);
}
