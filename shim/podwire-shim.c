/* podwire-shim: the parent of one container's processes, the writer of its log, the keeper of its exit status.
 * README.md beside this file is the contract; tests/shim runs every test on this program and on a sanitized build.
 * One thread, one poll loop, all descriptors close-on-exec, no wait without a deadline. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UNIFIED "/sys/fs/cgroup/unified"
#define EACH(client) for (struct client *client = clients; client < clients + CLIENTS; client++)
#define USAGE_LINE "usage: podwire-shim run OPTIONS -- RUNTIME [ARG]... | exec OPTIONS -- PROGRAM [ARG]... | " \
                   "attached FILE | has-link NAME | pause ID USERNS|- NETNS|- IPCNS|- [CGROUP]... | version"
#define say(...) (snprintf(said, sizeof said, __VA_ARGS__), said)

enum { USAGE = 2, FAILED = 125, CANNOT_RUN = 126, NOT_FOUND = 127 }; /* exit codes; then bytes and counts, then ms */
enum { LINE = 16 << 10, CHUNK = 64 << 10, SPARE = 512, REASON = 3 << 10, PATH = 4000, CGROUPS = 16, CLIENTS = 64 };
enum { NOBODY = 65534 }; /* the user of pause */
enum { HOLD = 1000, ADOPT = 2000, DRAIN = 500, ASK = 5000, END = 5000, TICK = 100 };
enum mode { FREE, ASKING, WAITING, FEEDING, WATCHING };
enum channel { STDOUT = 1, STDERR, EXITED };

struct stream { int fd; enum channel channel; const char *name; char *text; size_t length; };

static struct {
    const char *id, *bundle, *state, *log, *die_with, *detached, *cgroups[CGROUPS + 1];
    bool tty, input, input_once, cover;
    char **command;
} given;
static char texts[3][LINE + CHUNK], queues[CLIENTS][CHUNK + SPARE], said[REASON + PATH], reason[REASON];
static struct stream out = {-1, STDOUT, "stdout", texts[0], 0}, err = {-1, STDERR, "stderr", texts[1], 0};
static struct { int fd; char *text; size_t length, lines, lost; } journal = {-1, texts[2], 0, 0, 0};
static struct client {
    int fd; enum mode mode; long long since; size_t lost, from, to; char request[64];
} clients[CLIENTS];
static enum { STARTING, RUNNING, ENDED, TOLD } life;
static int door = -1, console = -1, told = -1, input = -1, status;
static pid_t launcher, init; /* 0 once reaped: the number may be another's then */
static bool owner, full, recorded; /* of the state directory; is stdin; is the exit */
static long long since, started_ns, ended_ns, start_ticks; /* the present life, in ms; the next two by the wall clock */
static sigset_t waiting;
static volatile sig_atomic_t stopped;

static _Noreturn void die(int code, const char *text) {
    dprintf(STDERR_FILENO, "podwire-shim: %s\n", text);
    exit(code);
}

static struct timespec now(clockid_t which) { struct timespec time; clock_gettime(which, &time); return time; }
static long long ns(struct timespec time) { return time.tv_sec * 1000000000LL + time.tv_nsec; }
static long long now_ms(void) { return ns(now(CLOCK_MONOTONIC)) / 1000000; }
static void nap(void) { usleep(300); }
static int code_of(int how) { return WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how); }
static void on_signal(int number) { stopped |= number != SIGCHLD; }

static void shut(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static bool read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);
    text[got > 0 ? got : 0] = 0;
    shut(&fd);
    return got > 0;
}

/* Kills whom a file lists, and their process groups. */
static int kill_listed(const char *path, bool groups) {
    char text[CHUNK], *at = text, *next;
    int count = 0;
    read_text(path, text, sizeof text);
    for (pid_t pid; pid = (pid_t)strtol(at, &next, 10), next != at; at = next) {
        pid_t group = groups ? getpgid(pid) : 0;
        if (group > 1 && group != getpgrp()) kill(-group, SIGKILL);
        count += pid > 0 && pid != getpid() && kill(pid, SIGKILL) == 0;
    }
    return count;
}

/* Ends all descendants: who loses its parent becomes our child, so there are new rounds until there is none. */
static void end_family(void) {
    for (long long until = now_ms() + END; now_ms() < until && waitpid(-1, NULL, WNOHANG) >= 0; nap())
        kill_listed("/proc/thread-self/children", true);
}

static int kill_all(void) {
    int count = (launcher || init) && kill(launcher ? launcher : init, SIGKILL) == 0;
    for (const char **each = given.cgroups; *each; each++) count += kill_listed(say("%s/cgroup.procs", *each), false);
    return count;
}

/* Makes us the parent of whoever gets orphaned below; these signals arrive only while we poll, the others never. */
static void stand_over(const int *arriving) {
    sigfillset(&waiting);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || sigprocmask(SIG_SETMASK, &waiting, NULL) < 0) die(FAILED, say("%m"));
    for (; *arriving; arriving++) signal(*arriving, on_signal), sigdelset(&waiting, *arriving);
}

/* crun takes a version 2 hierarchy with controllers beside version 1 for an error. It is covered for crun alone: only
 * this mount is made private, in a namespace of its own; all others still tell the host of mounts and hear of its. */
static void cover_unified(void) {
    if (access(UNIFIED, F_OK) < 0) return;
    if (unshare(CLONE_NEWNS) < 0) die(FAILED, say("a new mount namespace: %m"));
    if (mount(NULL, UNIFIED, NULL, MS_PRIVATE, NULL) < 0 && errno == EINVAL) return; /* a directory: nothing to cover */
    if (mount("tmpfs", UNIFIED, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, "mode=0755") < 0)
        die(FAILED, say(UNIFIED " could not be covered: %m"));
}

/* With stdio in place: becomes the given command. What goes wrong is told on stderr. */
static _Noreturn void launch(void) {
    for (int each = 1; each < NSIG; each++) signal(each, SIG_DFL);
    sigemptyset(&waiting);
    sigprocmask(SIG_SETMASK, &waiting, NULL);
    unsetenv("LISTEN_FDS"), unsetenv("LISTEN_PID"), unsetenv("NOTIFY_SOCKET"); /* meant for our caller alone */
    for (const char **each = given.cgroups; *each; each++) { /* before the cover: one of them may be under it */
        int fd = open(say("%s/cgroup.procs", *each), O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1) die(FAILED, say("%s/cgroup.procs: %m", *each));
        close(fd);
    }
    if (given.cover) cover_unified();
    if (given.bundle && chdir(given.bundle) < 0) die(FAILED, say("%s: %m", given.bundle));
    execvp(given.command[0], given.command);
    die(errno == ENOENT ? NOT_FOUND : CANNOT_RUN, say("%s: %m", given.command[0]));
}

/* A child that becomes the command, leads a session, and does not outlive us. */
static pid_t fork_launcher(int in_from, int out_to, int err_to) {
    pid_t self = getpid(), child = fork();
    if (child != 0) return child;
    bool bound = setsid() > 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == self;
    if (bound && dup2(in_from, 0) >= 0 && dup2(out_to, 1) >= 0 && dup2(err_to, 2) >= 0) launch();
    _exit(FAILED);
}

static pid_t number_in(const char *path) {
    char text[32];
    return read_text(path, text, sizeof text) ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* Reaps. Whether the command has ended: `child`, or, when that detached, the process whose number it wrote; that one
 * may be reaped first, as both are ours from the same moment on. */
static bool command_ended(pid_t *child) {
    static pid_t orphan;
    static int orphan_status;
    pid_t each;
    while ((each = waitpid(-1, &status, WNOHANG)) > 0) {
        if (each == *child && (!given.detached || status != 0)) return true;
        if (each == *child) *child = number_in(given.detached), given.detached = NULL;
        else if (given.detached && each == number_in(given.detached)) orphan = each, orphan_status = status;
        if (orphan && *child == orphan) return status = orphan_status, true;
    }
    status = W_EXITCODE(FAILED, 0); /* whom we wait for was never ours */
    return each < 0;
}

/* `exec --die-with`: stays as the parent, and ends the command with the caller or on a signal. */
static int supervise(pid_t caller) {
    struct pollfd gone = {(int)syscall(SYS_pidfd_open, caller, 0), POLLIN, 0};
    if (gone.fd < 0 || getppid() != caller) die(FAILED, say("the caller, process %d, is gone", caller));
    stand_over((const int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, 0});
    pid_t child = fork_launcher(0, 1, 2);
    bool ended = false;
    if (child < 0) die(FAILED, say("fork: %m"));
    close(0), close(1), close(2); /* the command's pipes end with it, not with us */
    while (!ended && ppoll(&gone, 1, NULL, &waiting) < 0 && !stopped) ended = command_ended(&child);
    int code = ended ? code_of(status) : 128 + SIGKILL;
    end_family(); /* when it ended by itself: what the runtime left behind */
    return code;
}

/* Into the state directory, which is the working directory. */
static bool write_file(const char *name, const char *text, bool durable) {
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = open(".new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool good = here >= 0 && fd >= 0 && dprintf(fd, "%s\n", text) == (int)strlen(text) + 1 &&
                (!durable || fsync(fd) == 0) && rename(".new", name) == 0 && (!durable || fsync(here) == 0);
    shut(&here), shut(&fd);
    return good;
}

static const char *describe(void) {
    if (life == STARTING) return say("{\"state\":\"starting\",\"shim\":%d}", getpid());
    if (life == RUNNING)
        return say("{\"state\":\"running\",\"pid\":%d,\"start_ticks\":%lld,\"time_ns\":%lld,\"lost\":%zu,"
                   "\"shim\":%d}", init, start_ticks, started_ns, journal.lost, getpid());
    return say("{\"state\":\"exited\",\"code\":%d,\"signal\":%d,\"time_ns\":%lld,\"lost\":%zu}", code_of(status),
               WIFSIGNALED(status) ? WTERMSIG(status) : 0, ended_ns, journal.lost);
}

static _Noreturn void give_up(const char *text) {
    text = strdupa(text);
    end_family();
    if (owner) write_file("failed", text, false), unlink("console.sock"), unlink("shim.sock");
    dprintf(told, "-%s", text); /* the foreground process may be gone; the file tells, too */
    exit(1);
}

/* No link is followed at the end of the path, and nothing but a file is written: what stands there may be a trap. */
static int open_log(void) {
    struct stat found;
    int fd = open(given.log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0640);
    if (fd >= 0 && (fstat(fd, &found) < 0 || !S_ISREG(found.st_mode))) shut(&fd), errno = EINVAL;
    return fd;
}

/* What cannot be written is counted and dropped, in whole lines: a container never waits for a full disk. */
static void flush_log(void) {
    off_t size = lseek(journal.fd, 0, SEEK_END);
    size_t done = 0;
    for (ssize_t n; done < journal.length && (n = write(journal.fd, journal.text + done, journal.length - done)) > 0;)
        done += (size_t)n;
    if (given.log && done < journal.length) journal.lost += journal.lines;
    if (done > 0 && done < journal.length && ftruncate(journal.fd, size) < 0) shut(&journal.fd); /* until reopened */
    journal.length = journal.lines = 0;
}

static void log_line(const char *head, char tag, const char *text, size_t length) {
    if (journal.length + strlen(head) + length + 3 > sizeof texts[2]) flush_log();
    char *end = stpcpy(journal.text + journal.length, head);
    *end++ = tag, *end++ = ' ';
    end = mempcpy(end, text, length);
    *end++ = '\n';
    journal.length = (size_t)(end - journal.text);
    journal.lines++;
}

/* Logs the lines of what was read; the rest of a line stays until more comes, or until this is the last. */
static void log_lines(struct stream *from, bool last) {
    char head[64], *at = from->text, *end = at + from->length;
    struct timespec time = now(CLOCK_REALTIME);
    size_t date = strftime(head, sizeof head, "%Y-%m-%dT%H:%M:%S", gmtime(&time.tv_sec));
    snprintf(head + date, sizeof head - date, ".%09ldZ %s ", time.tv_nsec, from->name);
    for (char *newline, *stop; at < end; at = stop) {
        newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        if (length > 0 && at[length - 1] == '\r' && (newline || !last)) length--; /* of "\r\n", part of no line */
        if (length > LINE) log_line(head, 'P', at, LINE), stop = at + LINE;
        else if (newline) log_line(head, 'F', at, length), stop = newline + 1;
        else if (last) log_line(head, 'P', at, length), stop = end;
        else break;
    }
    flush_log();
    from->length = (size_t)(end - at);
    memmove(from->text, at, from->length);
    if (last) shut(&from->fd);
}

static void drop(struct client *from) {
    shut(&from->fd);
    from->mode = FREE;
}

static void answer(struct client *to, const char *text) { /* a line; a fresh socket has room for it */
    dprintf(to->fd, "%s\n", text);
    drop(to);
}

static void send_queue(struct client *to) {
    ssize_t sent = send(to->fd, queues[to - clients] + to->from, to->to - to->from, MSG_NOSIGNAL);
    if (sent > 0) to->from += (size_t)sent;
    else if (errno != EAGAIN) drop(to);
}

/* As a frame. Who has not taken the last one loses the next ones, and is told how much; nobody waits. */
static void offer(struct client *to, enum channel channel, const char *data, size_t length) {
    if (to->from == to->to) to->from = to->to = 0;
    else if (channel != EXITED) to->lost += length;
    if (to->to > 0 && channel != EXITED) return;
    const uint32_t head[] = {htonl(channel), htonl((uint32_t)to->lost), htonl((uint32_t)length)};
    char *queue = queues[to - clients], *end = mempcpy(mempcpy(queue + to->to, head, sizeof head), data, length);
    to->to = (size_t)(end - queue), to->lost = 0;
    send_queue(to);
}

static void pump(struct stream *from) {
    char *at = from->text + from->length;
    ssize_t got = read(from->fd, at, CHUNK - 1);
    if (got < 0 && errno == EAGAIN) return;
    size_t length = got > 0 ? (size_t)got : 0; /* a terminal tells its end as EIO */
    if (life == STARTING && from == &err) snprintf(reason, sizeof reason, "%.*s", (int)length, at);
    EACH(client) if (length > 0 && client->mode == WATCHING) offer(client, from->channel, at, length);
    from->length += length;
    log_lines(from, length == 0);
}

static void close_input(void) {
    shut(&input);
    EACH(client) if (client->mode == FEEDING) drop(client);
}

/* Takes from the client what the container takes. */
static void feed(struct client *from) {
    char bytes[4096];
    ssize_t got = recv(from->fd, bytes, sizeof bytes, MSG_PEEK), took = got > 0 ? write(input, bytes, (size_t)got) : 0;
    if (got < 0 && errno == EAGAIN) return;
    if (took > 0) recv(from->fd, bytes, (size_t)took, 0);
    else if (took < 0 && errno == EAGAIN) full = true;
    else if (took < 0 || given.input_once) close_input();
    else drop(from);
}

static const char *reopen(void) {
    int fd = given.log ? open_log() : -1;
    if (fd < 0) return say("error %s", given.log ? strerror(errno) : "there is no log");
    shut(&journal.fd);
    journal.fd = fd;
    return "ok";
}

static void serve(struct client *from) {
    struct winsize size = {0};
    char *request = from->request, *end = request + strlen(request), *last = request + sizeof from->request - 2;
    ssize_t got; /* byte by byte, for what follows the line may be for stdin */
    while ((got = recv(from->fd, end, 1, 0)) == 1 && *end != '\n' && end < last) end++;
    if (got < 0 && errno == EAGAIN) return;
    *end = 0;
    bool wait = !strcmp(request, "wait"), feeds = !strcmp(request, "stdin"), watch = !strcmp(request, "attach");
    if (got <= 0) drop(from);
    else if (!strcmp(request, "status") || (wait && life == TOLD)) answer(from, describe());
    else if (wait) from->mode = WAITING;
    else if (feeds && input < 0) answer(from, "error stdin is not open");
    else if (feeds || watch) dprintf(from->fd, "ok\n"), from->mode = feeds ? FEEDING : WATCHING;
    else if (!strcmp(request, "reopen")) answer(from, reopen());
    else if (!strcmp(request, "killall")) answer(from, say("ok %d", kill_all()));
    else if (sscanf(request, "resize %hu %hu", &size.ws_col, &size.ws_row) != 2) answer(from, "error unknown request");
    else answer(from, given.tty && ioctl(out.fd, TIOCSWINSZ, &size) == 0 ? "ok" : "error there is no terminal");
}

static void welcome(void) {
    int fd = accept4(door, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    EACH(client) if (fd >= 0 && client->mode == FREE)
        *client = (struct client){.fd = fd, .mode = ASKING, .since = now_ms()}, fd = -1;
    shut(&fd); /* too many */
}

static int listen_at(const char *name) {
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    stpncpy(place.sun_path, name, sizeof place.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&place, sizeof place) < 0 || listen(fd, 64) < 0)
        give_up(say("%s/%s: %m", given.state, name));
    owner = true;
    return fd;
}

/* The runtime made the terminal, in the container's own devpts, and has sent its master before it ended. */
static void receive_terminal(void) {
    union { struct cmsghdr head; char space[CMSG_SPACE(sizeof(int))]; } part = {.space = ""};
    char name[256];
    struct msghdr message = {.msg_iov = &(struct iovec){name, sizeof name}, .msg_iovlen = 1, .msg_control = &part,
                             .msg_controllen = sizeof part};
    int peer = accept4(console, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (peer < 0 || recvmsg(peer, &message, MSG_CMSG_CLOEXEC) <= 0 || part.head.cmsg_type != SCM_RIGHTS)
        give_up("the runtime handed over no terminal");
    shut(&peer), shut(&console), shut(&out.fd), shut(&err.fd), shut(&input), unlink("console.sock");
    memcpy(&out.fd, CMSG_DATA(&part.head), sizeof out.fd);
    fcntl(out.fd, F_SETFL, O_RDWR | O_NONBLOCK);
    if (given.input) input = fcntl(out.fd, F_DUPFD_CLOEXEC, 3);
}

/* The runtime is gone: is its container there, and our child? */
static void decide(int how) {
    char text[1024], *rest;
    if (how && !reason[0] && read(err.fd, reason, sizeof reason - 1) <= 0) strcpy(reason, "it did not say why");
    for (size_t n = strlen(reason); n > 0 && reason[n - 1] == '\n';) reason[--n] = 0;
    if (how) give_up(say("the runtime ended with %d: %s", code_of(how), reason));
    if (given.tty) receive_terminal();
    if (!read_text("pid", text, sizeof text) || (init = atoi(text)) <= 0) give_up("the runtime left no pid file");
    for (long long until = now_ms() + ADOPT; waitid(P_PID, (id_t)init, NULL, WEXITED | WNOHANG | WNOWAIT) < 0; nap())
        if (now_ms() > until) give_up(say("process %d of the pid file is not ours", init));
    read_text(say("/proc/%d/stat", init), text, sizeof text);
    rest = strrchr(text, ')'); /* a process may be called anything, also "x) S 1" */
    if (!rest || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld",
                        &start_ticks) != 1) give_up(say("/proc/%d/stat cannot be read", init));
    started_ns = ns(now(CLOCK_REALTIME)), life = RUNNING;
    if (!write_file("started", describe(), false)) give_up(say("%s/started: %m", given.state));
    dprintf(told, "+%d", init);
    shut(&told);
}

/* Tells whether there are children left. */
static bool reap(void) {
    pid_t each;
    int how;
    if (launcher) { /* init, if it is already dead, stays dead until its number is known */
        if (waitpid(launcher, &how, WNOHANG) != launcher) return true;
        launcher = 0;
        decide(how);
    }
    while ((each = waitpid(-1, &how, WNOHANG)) > 0)
        if (each == init) init = 0, status = how, life = ENDED, since = now_ms(), ended_ns = ns(now(CLOCK_REALTIME));
    return each == 0;
}

static void finish(void) {
    log_lines(&out, true), log_lines(&err, true), close_input();
    life = TOLD;
    const char *text = describe();
    recorded = write_file("exit", text, true);
    EACH(client) if (client->mode == WAITING) answer(client, text);
    EACH(client) if (client->mode == WATCHING) offer(client, EXITED, text, strlen(text)), drop(client);
}

static void look_after(void) {
    enum { OUT, ERR, INPUT, DOOR, FIRST };
    for (bool children = true; life != TOLD || !recorded || children;) {
        bool held = life == STARTING && now_ms() < since + HOLD, ticking = life != RUNNING && !recorded;
        struct pollfd set[FIRST + CLIENTS] = {{held ? -1 : out.fd, POLLIN, 0}, {held ? -1 : err.fd, POLLIN, 0},
                                              {full ? input : -1, POLLOUT, 0}, {door, POLLIN, 0}};
        EACH(client) {
            bool asking = client->mode == ASKING, feeding = client->mode == FEEDING;
            short events = asking || feeding ? POLLIN : client->from < client->to ? POLLOUT : 0;
            int fd = client->mode == FREE || (feeding && full) ? -1 : client->fd;
            set[FIRST + (client - clients)] = (struct pollfd){fd, events, 0};
            ticking |= asking;
        }
        if (ppoll(set, FIRST + CLIENTS, ticking ? &(struct timespec){.tv_nsec = TICK * 1000000} : NULL, &waiting) < 0)
            memset(set, 0, sizeof set); /* a signal */
        children = reap();
        if (set[OUT].revents) pump(&out);
        if (set[ERR].revents) pump(&err);
        if (set[INPUT].revents) full = false;
        EACH(client) {
            short ready = set[FIRST + (client - clients)].revents;
            bool late = client->mode == ASKING && now_ms() > client->since + ASK;
            if (ready && client->mode == ASKING) serve(client);
            else if (ready && client->mode == FEEDING) feed(client);
            else if (ready & (POLLHUP | POLLERR) || late) drop(client);
            else if (ready) send_queue(client);
        }
        if (set[DOOR].revents) welcome();
        if (life == ENDED && ((out.fd < 0 && err.fd < 0) || now_ms() > since + DRAIN)) finish();
        if (life == TOLD && !recorded) recorded = write_file("exit", describe(), true) || errno == ENOENT;
    }
}

static _Noreturn void be_shim(void) {
    int to_in[2] = {-1, -1}, to_out[2], to_err[2];
    if (daemon(1, 0) < 0) give_up(say("daemon: %m"));
    stand_over((const int[]){SIGCHLD, 0});
    if (chdir(given.state) < 0) give_up(say("%s: %m", given.state));
    if (access("started", F_OK) == 0) give_up(say("%s served a start before", given.state));
    door = listen_at("shim.sock");
    unlink("failed"), unlink("pid");
    if (given.tty) console = listen_at("console.sock");
    if (given.log && (journal.fd = open_log()) < 0) give_up(say("%s: %m", given.log));
    if (pipe2(to_out, O_CLOEXEC) < 0 || pipe2(to_err, O_CLOEXEC) < 0 || (given.input && pipe2(to_in, O_CLOEXEC) < 0))
        give_up(say("pipe: %m"));
    input = to_in[1], out.fd = to_out[0], err.fd = to_err[0], since = now_ms();
    fcntl(input, F_SETFL, O_NONBLOCK), fcntl(out.fd, F_SETFL, O_NONBLOCK), fcntl(err.fd, F_SETFL, O_NONBLOCK);
    if ((launcher = fork_launcher(given.input ? to_in[0] : 0, to_out[1], to_err[1])) < 0) give_up(say("fork: %m"));
    shut(&to_in[0]), shut(&to_out[1]), shut(&to_err[1]);
    look_after();
    unlink("shim.sock");
    exit(0);
}

/* The foreground: waits until the start is decided, and says so. */
static int run(void) {
    char text[REASON + PATH] = "";
    size_t length = 0;
    int ends[2];
    pid_t child = pipe2(ends, O_CLOEXEC) < 0 ? -1 : fork();
    if (child < 0) die(1, say("fork: %m"));
    if (child == 0) close(ends[0]), told = ends[1], be_shim();
    shut(&ends[1]);
    for (ssize_t got; (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0;) length += (size_t)got;
    if (text[0] != '+') die(1, text[0] ? text + 1 : "the shim died before the start was decided");
    return dprintf(STDOUT_FILENO, "%s\n", text + 1) < 0;
}

static void parse(const char *verb, char **rest) {
    static const struct option { const char *name, *verbs, **value; bool *flag; } options[] = {
        {"--id", "run", &given.id, 0}, {"--bundle", "run path", &given.bundle, 0}, {"--tty", "run", 0, &given.tty},
        {"--state", "run path", &given.state, 0}, {"--log", "run path", &given.log, 0},
        {"--stdin", "run", 0, &given.input}, {"--stdin-once", "run", 0, &given.input_once},
        {"--cgroup", "run exec path", given.cgroups, 0}, {"--cover-unified", "run exec", 0, &given.cover},
        {"--die-with", "exec", &given.die_with, 0}, {"--detached", "exec path", &given.detached, 0},
    }, *end = options + sizeof options / sizeof *options;
    int cgroups = 0;
    for (; *rest && strcmp(*rest, "--") != 0; rest++) {
        const struct option *each = options;
        while (each < end && (strcmp(each->name, *rest) != 0 || !strstr(each->verbs, verb))) each++;
        if (each == end || (each->value && !*++rest)) die(USAGE, USAGE_LINE);
        if (strstr(each->verbs, "path") && (**rest != '/' || strlen(*rest) > PATH))
            die(USAGE, say("%s wants an absolute path, not %.99s", each->name, *rest));
        if (each->flag) *each->flag = true;
        else if (each->value != given.cgroups) *each->value = *rest;
        else if (cgroups < CGROUPS) given.cgroups[cgroups++] = *rest;
        else die(USAGE, USAGE_LINE);
    }
    if (!*rest || !*++rest) die(USAGE, USAGE_LINE);
    given.command = rest;
}

/* The number at "pid" of an OCI state, and at no "pid" further inside or in somebody's text; 0 when there is none. */
static long pid_in(const char *at) {
    int depth = 0;
    for (; *at; at++) {
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (*at != '"') continue;
        const char *word = ++at;
        for (; *at && *at != '"'; at++) at += *at == '\\' && at[1];
        if (!*at) return 0;
        const char *next = at + 1 + strspn(at + 1, " \t\r\n");
        if (depth == 1 && at - word == 3 && !strncmp(word, "pid", 3) && *next == ':') return strtol(next + 1, NULL, 10);
    }
    return 0;
}

/* Reads the OCI state that hooks get; returns the number of the container's process. */
static long process_of_hook(const char *verb) {
    static char state[CHUNK];
    size_t length = 0;
    for (ssize_t got; (got = read(STDIN_FILENO, state + length, sizeof state - 1 - length)) > 0;) length += (size_t)got;
    long pid = pid_in(state);
    if (pid <= 0) die(1, say("%s: stdin is not an OCI state with a pid", verb));
    return pid;
}

/* An OCI hook: the container starts only in the network namespace that the file names. */
static int check_attached(const char *file) {
    char wanted[64], found[64];
    struct stat space;
    long pid = process_of_hook("attached");
    errno = 0;
    if (!read_text(file, wanted, sizeof wanted))
        die(1, say("attached: the pod's claimed network interfaces are not attached: %s: %s", file,
                   errno ? strerror(errno) : "it is empty"));
    if (stat(say("/proc/%ld/ns/net", pid), &space) < 0) die(1, say("attached: process %ld: %m", pid));
    snprintf(found, sizeof found, "%llu:%llu", (unsigned long long)space.st_dev, (unsigned long long)space.st_ino);
    wanted[strcspn(wanted, " \r\n")] = 0;
    if (strcmp(wanted, found) != 0)
        die(1, say("attached: the pod's claimed network interfaces are in the network namespace %s, and this container "
                   "is in %s", wanted, found));
    return 0;
}

/* An OCI hook: the container starts only in a network namespace that has the link. */
static int check_link(const char *name) {
    long pid = process_of_hook("has-link");
    int space = open(say("/proc/%ld/ns/net", pid), O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) < 0)
        die(1, say("has-link: the network namespace of process %ld: %m", pid));
    if (if_nametoindex(name) == 0)
        die(1, say("has-link: the network namespace of the pod does not have the device's link %s", name));
    return 0;
}

static int open_namespace(const char *path) {
    int fd = strcmp(path, "-") == 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && strcmp(path, "-") != 0) die(FAILED, say("pause: the namespace %.99s: %m", path));
    return fd;
}

static void join(int *fd, int kind, const char *name) {
    if (*fd >= 0 && setns(*fd, kind) < 0) die(FAILED, say("pause: join the %s namespace: %m", name));
    shut(fd);
}

/* The first process of a pod's pid namespace. Containers that share it can look at /proc/1, so that nothing of the host
 * is to be found there: an empty root, no descriptors, no privileges, a user that owns nothing; and who is not the
 * host's root may not look at all. Children are reaped by the kernel. Only a signal from outside ends it. */
static _Noreturn void be_pause(int report) {
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0555,size=4k,nr_inodes=1") < 0 ||
        chdir("/proc") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0 ||
        mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        die(FAILED, say("pause: an empty root: %m"));
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0) die(FAILED, say("pause: drop capabilities: %m"));
    if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
        die(FAILED, say("pause: become an unprivileged user: %m"));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        die(FAILED, say("pause: %m"));
    prctl(PR_SET_NAME, "pause", 0, 0, 0);
    signal(SIGCHLD, SIG_IGN);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (write(report, "+", 1) != 1) exit(FAILED);
    for (int fd = 0; fd <= report; fd++) close(fd);
    for (;;) pause();
}

/* Replaces the command line, which containers can read in /proc/1/cmdline, and which has paths of the host in it. The
 * last byte of it is not zero: then the kernel shows it up to the first zero. */
static void set_title(const char *title, char **argv, int argc) {
    char *end = argv[argc - 1] + strlen(argv[argc - 1]);
    memset(argv[0], 0, (size_t)(end - argv[0]));
    snprintf(argv[0], (size_t)(end - argv[0]), "%s", title);
    *end = 1;
}

/* Starts the pause process of a pod, and prints its number. It is in the pod's namespaces and in a pid namespace that
 * the pod's user namespace owns. */
static _Noreturn void start_pause(char **argv, int argc) {
    char **paths = argv + 3, **cgroups = argv + 6;
    int report[2], user = open_namespace(paths[0]), net = open_namespace(paths[1]), ipc = open_namespace(paths[2]);
    char ready = 0;
    for (; *cgroups; cgroups++) {
        int fd = open(say("%s/cgroup.procs", *cgroups), O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1) die(FAILED, say("pause: the cgroup %.99s: %m", *cgroups));
        shut(&fd);
    }
    join(&user, CLONE_NEWUSER, "user"); /* all were opened before: it may not read these paths */
    join(&net, CLONE_NEWNET, "network");
    join(&ipc, CLONE_NEWIPC, "ipc");
    if (pipe2(report, O_CLOEXEC) < 0 || unshare(CLONE_NEWPID) < 0) die(FAILED, say("pause: a pid namespace: %m"));
    pid_t pid = fork();
    if (pid < 0) die(FAILED, say("pause: %m"));
    if (pid == 0) {
        close(report[0]);
        setsid();
        set_title(say("pause %.200s", argv[2]), argv, argc);
        be_pause(report[1]);
    }
    close(report[1]);
    if (read(report[0], &ready, 1) != 1) _exit(FAILED); /* it has said why */
    _exit(dprintf(STDOUT_FILENO, "%d\n", (int)pid) < 0); /* whatever ran at the exit could fork into the namespace */
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    if (syscall(SYS_close_range, 3, ~0U, 0) < 0) die(FAILED, say("close_range: %m"));
    if (strcmp(verb, "version") == 0 && argc == 2) return dprintf(STDOUT_FILENO, "podwire-shim 1 c\n") < 0;
    if (strcmp(verb, "attached") == 0 && argc == 3 && *argv[2] == '/' && strlen(argv[2]) <= PATH)
        return check_attached(argv[2]);
    if (strcmp(verb, "has-link") == 0 && argc == 3 && *argv[2] && strlen(argv[2]) < IFNAMSIZ)
        return check_link(argv[2]);
    if (strcmp(verb, "pause") == 0 && argc >= 6) start_pause(argv, argc);
    if (strcmp(verb, "run") != 0 && strcmp(verb, "exec") != 0) die(USAGE, USAGE_LINE);
    parse(verb, argv + 2);
    if (given.die_with) return supervise(atoi(given.die_with));
    if (verb[0] == 'e') launch();
    if (!given.id || !given.bundle || !given.state) die(USAGE, USAGE_LINE);
    return run();
}
