"""The system calls of the default seccomp profile: those that every container may make, those that need a capability,
and those that are refused with EPERM. The same in effect as containerd's default profile of 2026.

The names are libseccomp's; one that it does not know on a machine is left out by the OCI runtime.
"""

_SOCKETS = """
    accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg recvmmsg_time64 recvmsg
    send sendmmsg sendmsg sendto setsockopt shutdown socketcall socketpair
"""
_FILES = """
    _llseek access chdir chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
    fadvise64 fadvise64_64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync
    flock fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futimesat getcwd getdents getdents64
    ioctl lchown lchown32 link linkat listmount lseek lstat lstat64 mkdir mkdirat mknod mknodat name_to_handle_at
    newfstatat open openat openat2 pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink
    readlinkat readv rename renameat renameat2 rmdir sendfile sendfile64 splice stat stat64 statfs statfs64 statmount
    statx symlink symlinkat sync sync_file_range syncfs tee truncate truncate64 unlink unlinkat utime utimensat
    utimensat_time64 utimes vmsplice write writev
    fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr
    lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat
"""
_EVENTS = """
    _newselect epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old
    eventfd eventfd2 fanotify_mark futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake get_robust_list
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
    io_pgetevents_time64 io_setup io_submit poll ppoll ppoll_time64 pselect6 pselect6_time64 select set_robust_list
"""
_MEMORY = """
    brk cachestat madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mmap2
    mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_mrelease
    remap_file_pages
    ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64
    mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget
"""
_PROCESSES = """
    execve execveat exit exit_group fork get_thread_area getcpu getpgid getpgrp getpid getppid getpriority getrandom
    getrlimit getrusage getsid gettid ioprio_get ioprio_set prctl prlimit64 restart_syscall rseq sched_get_priority_max
    sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
    sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield
    set_thread_area set_tid_address setpgid setpriority setrlimit setsid sysinfo ugetrlimit umask uname uretprobe vfork
    wait4 waitid waitpid
    process_vm_readv process_vm_writev ptrace
    capget capset getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getresgid getresgid32
    getresuid getresuid32 getuid getuid32 setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32
    setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setuid setuid32
    landlock_add_rule landlock_create_ruleset landlock_restrict_self lsm_get_self_attr lsm_list_modules
    lsm_set_self_attr seccomp
"""
_SIGNALS_AND_TIME = """
    alarm kill pause pidfd_open pidfd_send_signal rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
    rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sigaltstack signalfd signalfd4 sigprocmask
    sigreturn tgkill tkill
    adjtimex clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
    clock_nanosleep clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create timer_delete
    timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime
    timerfd_gettime64 timerfd_settime timerfd_settime64 times
"""

ALLOWED = tuple(f"{_SOCKETS}{_FILES}{_EVENTS}{_MEMORY}{_PROCESSES}{_SIGNALS_AND_TIME}".split())
"""Calls of every container. `ptrace` and its relatives cannot get around seccomp since Linux 4.8."""

OF_ARCHITECTURE = {
    "x86_64": ("arch_prctl", "modify_ldt"),
    "aarch64": (
        "arm_fadvise64_64", "arm_sync_file_range", "breakpoint", "cacheflush", "set_tls", "sync_file_range2",
    ),
    "ppc64le": ("swapcontext", "sync_file_range2"),
    "riscv64": ("riscv_flush_icache", "riscv_hwprobe"),
    "s390x": ("s390_pci_mmio_read", "s390_pci_mmio_write", "s390_runtime_instr"),
}  # fmt: skip

WITH_CAPABILITY = {
    "CAP_BPF": ("bpf",),
    "CAP_DAC_READ_SEARCH": ("open_by_handle_at",),
    "CAP_PERFMON": ("perf_event_open",),
    "CAP_SYSLOG": ("syslog",),
    "CAP_SYS_ADMIN": (
        "bpf", "clone", "clone3", "fanotify_init", "fsconfig", "fsmount", "fsopen", "fspick", "lookup_dcookie", "mount",
        "mount_setattr", "move_mount", "open_tree", "perf_event_open", "quotactl", "quotactl_fd", "setdomainname",
        "sethostname", "setns", "syslog", "umount", "umount2", "unshare",
    ),
    "CAP_SYS_BOOT": ("reboot",),
    "CAP_SYS_CHROOT": ("chroot",),
    "CAP_SYS_MODULE": ("delete_module", "finit_module", "init_module"),
    "CAP_SYS_NICE": ("get_mempolicy", "mbind", "set_mempolicy", "set_mempolicy_home_node"),
    "CAP_SYS_PACCT": ("acct",),
    "CAP_SYS_PTRACE": ("kcmp", "pidfd_getfd", "process_madvise"),
    "CAP_SYS_RAWIO": ("ioperm", "iopl"),
    "CAP_SYS_TIME": ("clock_settime", "clock_settime64", "settimeofday", "stime"),
    "CAP_SYS_TTY_CONFIG": ("vhangup",),
}  # fmt: skip
"""Calls that come with a capability; those of a capability that is missing are refused with EPERM."""

REFUSED = (
    "_sysctl", "add_key", "afs_syscall", "bdflush", "create_module", "get_kernel_syms", "getpmsg", "io_uring_enter",
    "io_uring_register", "io_uring_setup", "kexec_file_load", "kexec_load", "keyctl", "migrate_pages", "move_pages",
    "nfsservctl", "nice", "oldfstat", "oldlstat", "oldolduname", "oldstat", "olduname", "pciconfig_iobase",
    "pciconfig_read", "pciconfig_write", "pivot_root", "putpmsg", "query_module", "readdir", "request_key", "security",
    "sgetmask", "sigaction", "signal", "sigpending", "sigsuspend", "ssetmask", "swapoff", "swapon", "sysfs", "tuxcall",
    "uselib", "userfaultfd", "ustat", "vm86", "vm86old", "vserver",
)  # fmt: skip
"""Calls that no capability opens. Named, so that they answer EPERM; unnamed ones are newer than this table and answer
ENOSYS, at which a C library falls back to an older call."""
