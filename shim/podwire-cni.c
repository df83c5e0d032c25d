/* podwire-cni: every CNI plugin of ours. Hands its call to the daemon and prints the answer; where there is none, to a
 * helper, which it starts if none runs; where that fails, it becomes the same plugin in Python. It has the plugin's
 * name, and a note beside it: where the daemon listens, where helpers do, and what to run for each.
 * podwire/cniplugins/daemon/wire.py is the other end of what is said.
 *
 * The server says so before it begins with a call, so after whatever fails until then Python may do it. From then on
 * nobody knows what has happened: the runtime is told to try again later.
 *
 * A helper is a daemon that ends when it is idle: podwire/cniplugins/daemon/helper.py. Each mount namespace and each
 * note has its own. The caller that has the lock makes the socket: all others connect at once, and wait for the start.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOTE ".podwire-cni"
#define MAGIC "PWC1"
#define BEGUN 'B'

enum { IO_FAILURE = 5, TRY_AGAIN_LATER = 11, INTERNAL = 999 }; /* codes of CNI errors */
enum { PATIENCE = 55, CONNECTING = 5 };                        /* seconds; runtimes give a plugin 60 */
enum { LARGEST = 16 << 20, ANSWER = 64 << 20, CHUNK = 64 << 10, WORDS = 16, BACKLOG = 1024 };
enum { LISTENER = 3, LOCK = 4, UNUSED = 5 }; /* descriptors of a helper */

struct asked { char magic[4]; uint32_t name, environment, input; };
struct answered { uint32_t code, output, errors; };
struct text { char *at; size_t length; };

extern char **environ;

static char here[PATH_MAX], note[4 * PATH_MAX];
static const char *name, *door, *words[WORDS + 2]; /* the plugin, the server's socket, the program without one */
static const char *helpers, *serve[WORDS + 3];     /* the directory of helpers, none if it is NULL; their program */
static const char *leasing[2 * WORDS + 1];         /* the program that `dhcp daemon` stands for */
static char helper[64];                            /* the name of ours: its socket and its lock have it */
static struct text input;                          /* standard input, once it is read */
static bool consumed;

static void put(int fd, const char *at, size_t length) {
    while (length) {
        ssize_t done = write(fd, at, length);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return; /* nobody hears us */
        at += done, length -= (size_t)done;
    }
}

static void add(struct text *text, const char *words_) {
    size_t length = strlen(words_);
    memcpy(text->at + text->length, words_, length);
    text->length += length;
}

/* Ends with a CNI error: what is wrong, and where. What JSON does not take as it is becomes a question mark. */
static _Noreturn void fail(int code, const char *what, const char *where, const char *why) {
    static char buffer[sizeof note + 1024]; /* no name is longer than the note that tells it */
    struct text text = {buffer, 0};
    add(&text, "{\"cniVersion\": \"1.1.0\", \"code\": ");
    add(&text, code == TRY_AGAIN_LATER ? "11" : code == IO_FAILURE ? "5" : "999");
    add(&text, ", \"msg\": \"");
    size_t begin = text.length;
    add(&text, what), add(&text, where), add(&text, why);
    for (char *at = buffer + begin; at < buffer + text.length; at++)
        if ((unsigned char)*at < ' ' || (unsigned char)*at > '~' || *at == '"' || *at == '\\') *at = '?';
    add(&text, "\"}\n");
    put(STDOUT_FILENO, text.at, text.length);
    _exit(1);
}

static void grow(struct text *text, size_t by) {
    char *larger = realloc(text->at, text->length + by);
    if (!larger) fail(INTERNAL, "no memory", "", "");
    text->at = larger;
}

/* The whole of a descriptor, by doubling, at most one byte more than is allowed. */
static bool take_all(int fd, struct text *text, size_t limit) {
    for (size_t room = CHUNK;; room *= 2) {
        if (room > limit + 1) room = limit + 1;
        if (text->length >= room) return true;
        grow(text, room - text->length);
        while (text->length < room) {
            ssize_t got = read(fd, text->at + text->length, room - text->length);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return got == 0;
            text->length += (size_t)got;
        }
    }
}

/* The helper of this mount namespace and of this note. */
static void name_helper(const char *text) {
    struct stat mounts;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    if (stat("/proc/self/ns/mnt", &mounts)) fail(INTERNAL, "/proc/self/ns/mnt: ", strerror(errno), "");
    snprintf(helper, sizeof helper, "%ju-%016jx", (uintmax_t)mounts.st_ino, (uintmax_t)hash);
}

/* The note, line by line: `socket PATH`, then `run WORD` for each word of the program; with helpers `helper DIRECTORY`
 * and `serve WORD`; and `leasing WORD` for the daemon of the plugin dhcp. Without `run` the host has no interpreter of
 * podwire: only the daemon, in a pod, does the work. */
static void read_note(void) {
    char path[PATH_MAX + sizeof NOTE + 1];
    ssize_t length = readlink("/proc/self/exe", here, sizeof here - 1);
    char *slash = length > 0 ? strrchr(here, '/') : NULL;
    if (!slash) fail(INTERNAL, "/proc/self/exe cannot be read", "", "");
    *slash = 0, name = slash + 1;
    char *deleted = strstr(name, " (deleted)"); /* `install` replaced this file since the call began */
    if (deleted) *deleted = 0;
    strcpy(stpcpy(path, here), "/" NOTE);
    int fd = open(path, O_RDONLY | O_CLOEXEC), count = 0, also = 0, leases = 0;
    ssize_t got = fd < 0 ? -1 : read(fd, note, sizeof note - 1);
    if (got <= 0) fail(IO_FAILURE, path, ": cannot be read; `podwire cni install` writes it", "");
    close(fd);
    name_helper(note);
    for (char *line = strtok(note, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strncmp(line, "socket ", 7)) door = line + 7;
        if (!strncmp(line, "run ", 4) && count < WORDS) words[count++] = line + 4;
        if (!strncmp(line, "helper ", 7)) helpers = line + 7;
        if (!strncmp(line, "serve ", 6) && also < WORDS) serve[also++] = line + 6;
        if (!strncmp(line, "leasing ", 8) && leases < WORDS) leasing[leases++] = line + 8;
    }
    if (!also) helpers = NULL;
    if (!door) fail(IO_FAILURE, path, ": is not a settings file of podwire; `podwire cni install` writes it", "");
    words[count] = name, serve[also] = helpers, serve[also + 1] = helper;
}

/* What was read from standard input is there again. */
static _Noreturn void become_python(void) {
    if (!words[1]) fail(TRY_AGAIN_LATER, "the CNI daemon, a pod of this node, does not answer at ", door, "");
    if (consumed) {
        int fd = memfd_create("stdin", 0);
        if (fd < 0) fail(INTERNAL, "memfd_create: ", strerror(errno), "");
        put(fd, input.at, input.length);
        lseek(fd, 0, SEEK_SET);
        dup2(fd, STDIN_FILENO);
        close(fd);
    }
    signal(SIGPIPE, SIG_DFL);
    execv(words[0], (char **)words);
    fail(INTERNAL, words[0], ": ", strerror(errno));
}

/* `dhcp daemon FLAGS`: units of systemd that were made for the reference plugin run this. */
static _Noreturn void become_leasing(char **flags) {
    int count = 0;
    while (leasing[count]) count++;
    for (; *flags; flags++) {
        if (count == 2 * WORDS) fail(INTERNAL, "dhcp daemon: too many arguments", "", "");
        leasing[count++] = *flags;
    }
    signal(SIGPIPE, SIG_DFL);
    execv(leasing[0], (char **)leasing);
    fail(INTERNAL, leasing[0], ": ", strerror(errno));
}

static void set_patience(int fd, int option, int seconds) {
    struct timeval patience = {.tv_sec = seconds};
    setsockopt(fd, SOL_SOCKET, option, &patience, sizeof patience);
}

/* Connects to a server of root or of our own user. */
static int connected(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return -1;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    set_patience(fd, SO_SNDTIMEO, CONNECTING);
    set_patience(fd, SO_RCVTIMEO, PATIENCE);
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == 0 || peer.uid == geteuid()))
        return fd;
    close(fd);
    return -1;
}

/* Opens the directory of helpers, which nobody else may use; makes it if it does not exist. */
static int open_helpers(void) {
    char path[PATH_MAX];
    struct stat status;
    if (strlen(helpers) >= sizeof path) return -1;
    strcpy(path, helpers);
    for (char *slash = strchr(path + 1, '/'); slash; *slash = '/', slash = strchr(slash + 1, '/'))
        *slash = 0, mkdir(path, 0755);
    mkdir(path, 0700);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &status) || status.st_uid != geteuid() || status.st_mode & 077)) close(fd), fd = -1;
    return fd;
}

/* Becomes a helper, in a session of its own and with nothing of the caller's: no descriptor, directory or variable. */
static _Noreturn void become_helper(int listener, int lock) {
    static char *const variables[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    sigset_t none;
    setsid();
    if (fork()) _exit(0);
    int null = open("/dev/null", O_RDWR); /* and copies above both numbers: one may be where the other goes */
    int heard = fcntl(listener, F_DUPFD, UNUSED), held = fcntl(lock, F_DUPFD, UNUSED);
    dup2(null, STDIN_FILENO), dup2(null, STDOUT_FILENO), dup2(null, STDERR_FILENO);
    dup2(heard, LISTENER), dup2(held, LOCK);
    close_range(UNUSED, ~0U, 0);
    sigemptyset(&none), sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL), umask(077);
    if (chdir("/") == 0) execve(serve[0], (char **)serve, variables);
    _exit(127);
}

/* Starts a helper if none runs: it has the lock until it ends, so a socket without one is that of a dead helper. */
static void start_helper(int directory, const char *path) {
    char file[sizeof helper + 8];
    struct stat opened, named;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    snprintf(file, sizeof file, "%s.lock", helper);
    int lock = openat(directory, file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ours = lock >= 0 && listener >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && fstat(lock, &opened) == 0 &&
                fstatat(directory, file, &named, AT_SYMLINK_NOFOLLOW) == 0 && opened.st_ino == named.st_ino;
    if (ours) unlink(path); /* not ours: the helper that had this lock has just removed it */
    if (ours && bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, BACKLOG) == 0) {
        pid_t child = fork();
        if (child == 0) become_helper(listener, lock);
        if (child > 0) waitpid(child, NULL, 0);
    }
    close(listener), close(lock); /* a helper that ends refuses whoever waits, so nobody but it may have them */
}

/* Connects to our helper, started if need be. */
static int connected_helper(void) {
    char path[sizeof helper + 64];
    int directory = helpers ? open_helpers() : -1;
    if (directory < 0) return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s.sock", directory, helper);
    door = helpers;
    int fd = connected(path);
    if (fd >= 0) return fd;
    start_helper(directory, path);
    return connected(path);
}

static struct text environment(void) {
    struct text text = {NULL, 0};
    size_t length = 1;
    for (char **each = environ; *each; each++) length += strlen(*each) + 1;
    grow(&text, length);
    for (char **each = environ; *each; each++) add(&text, *each), text.at[text.length++] = 0;
    return text;
}

/* Where we are: network, mounts, root and working directory, by which the daemon understands what paths mean. */
static bool attach_place(struct msghdr *message) {
    static const char *const places[] = {"/proc/self/ns/net", "/proc/self/ns/mnt", "/", "."};
    static union { char bytes[CMSG_SPACE(4 * sizeof(int))]; struct cmsghdr align; } control;
    message->msg_control = control.bytes, message->msg_controllen = sizeof control.bytes;
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(4 * sizeof(int));
    for (int each = 0; each < 4; each++) {
        int fd = open(places[each], O_CLOEXEC | (each < 2 ? O_RDONLY : O_PATH));
        if (fd < 0) return false;
        memcpy(CMSG_DATA(header) + (size_t)each * sizeof fd, &fd, sizeof fd);
    }
    return true;
}

/* Whether the daemon has the whole call. */
static bool ask(int daemon) {
    struct text told = environment();
    struct asked head = {MAGIC, (uint32_t)strlen(name), (uint32_t)told.length, (uint32_t)input.length};
    struct iovec parts[] = {
        {&head, sizeof head}, {(char *)name, head.name}, {told.at, told.length}, {input.at, input.length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 4};
    if (!attach_place(&message)) return false;
    while (message.msg_iovlen) {
        ssize_t sent = sendmsg(daemon, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return false;
        message.msg_control = NULL, message.msg_controllen = 0;
        for (size_t left = (size_t)sent; message.msg_iovlen && left >= message.msg_iov->iov_len; message.msg_iovlen--)
            left -= message.msg_iov++->iov_len, sent = (ssize_t)left;
        if (message.msg_iovlen) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
            message.msg_iov->iov_len -= (size_t)sent;
        }
    }
    return true;
}

static ssize_t receive_some(int daemon, void *into, size_t length) {
    ssize_t got;
    while ((got = recv(daemon, into, length, 0)) < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN)
        fail(TRY_AGAIN_LATER, "the daemon at ", door, " has not answered in time; the call may still be done");
    return got;
}

/* Whether the daemon does the call, and nobody else may. */
static bool begun(int daemon) {
    char said;
    return receive_some(daemon, &said, 1) == 1 && said == BEGUN;
}

static void receive(int daemon, void *into, size_t length) {
    ssize_t got = 1;
    for (char *at = into; length; at += got, length -= (size_t)got) {
        got = receive_some(daemon, at, length);
        if (got <= 0) fail(TRY_AGAIN_LATER, "the daemon at ", door, " has gone while it did the call");
    }
}

int main(int argc, char **argv) {
    while (open("/dev/null", O_RDWR) <= STDERR_FILENO) continue; /* a closed one would become one of ours */
    signal(SIGPIPE, SIG_IGN);
    read_note();
    const char *command = getenv("CNI_COMMAND");
    if (!command && argc > 1 && !strcmp(name, "dhcp") && !strcmp(argv[1], "daemon") && leasing[0])
        become_leasing(argv + 2);
    if (command && strcmp(command, "VERSION")) { /* before we connect: nobody waits for a runtime that is slow */
        consumed = true;
        if (!take_all(STDIN_FILENO, &input, LARGEST)) fail(IO_FAILURE, "standard input: ", strerror(errno), "");
        if (input.length > LARGEST) fail(IO_FAILURE, "standard input: more than 16777216 bytes", "", "");
    }
    int daemon = connected(door);
    if (daemon < 0 || !ask(daemon) || !begun(daemon)) {
        daemon = consumed ? connected_helper() : -1;
        if (daemon < 0 || !ask(daemon) || !begun(daemon)) become_python();
    }
    struct answered head;
    receive(daemon, &head, sizeof head);
    if (head.output > ANSWER || head.errors > ANSWER)
        fail(TRY_AGAIN_LATER, "the daemon at ", door, " sent an invalid answer");
    struct text answer = {NULL, 0};
    grow(&answer, (size_t)head.output + head.errors + 1);
    receive(daemon, answer.at, (size_t)head.output + head.errors);
    put(STDERR_FILENO, answer.at + head.output, head.errors);
    put(STDOUT_FILENO, answer.at, head.output);
    _exit((int)head.code);
}
