// things ROUNDS: holds one of each thing that Linux gives programs, and checks all in each round. Prints
// "round N", and at the end RESULT with what depends on all rounds. The first thing that is not as the
// program left it is named by "LOST ...", and the exit status is 1.
//
// The program removes a file of the base file system, and replaces a folder, below LOWER. So the
// container's changes have a whiteout and an opaque folder.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define LOWER "/opt/stdchk-test/lower"
#define PERIOD_NS 20000000L  // of each timer
#define QUEUED_VALUE 42

static int round_now;

static void need(int good, const char* what) {
  if (good) return;
  printf("LOST %s in round %d: %s\n", what, round_now, strerror(errno));
  fflush(stdout);
  _exit(1);
}

static void sleep_ms(long ms) {
  struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// ---- descriptors ----------------------------------------------------------------------------------

static int pair[2], named, accepted, fifo, memory, master, slave, event, events, locked;

static void open_sockets(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/tmp/things.socket"};
  need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && write(pair[0], "q", 1) == 1, "a pair");
  const int listening = socket(AF_UNIX, SOCK_STREAM, 0);
  unlink(address.sun_path);
  need(
      bind(listening, (struct sockaddr*)&address, sizeof address) == 0 && listen(listening, 4) == 0,
      "a named socket");
  named = socket(AF_UNIX, SOCK_STREAM, 0);
  need(connect(named, (struct sockaddr*)&address, sizeof address) == 0, "a connection");
  accepted = accept(listening, NULL, NULL);
  need(accepted >= 0, "an accepted connection");
}

static void open_descriptors(void) {
  open_sockets();
  mkfifo("/tmp/things.fifo", 0600);
  fifo = open("/tmp/things.fifo", O_RDWR);
  need(fifo >= 0 && write(fifo, "f", 1) == 1, "a FIFO");
  memory = memfd_create("things", 0);
  need(memory >= 0 && write(memory, "memory", 6) == 6, "a memory file");
  master = posix_openpt(O_RDWR | O_NOCTTY);
  need(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0, "a terminal");
  slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  struct termios raw;
  need(slave >= 0 && tcgetattr(slave, &raw) == 0, "a terminal's other end");
  cfmakeraw(&raw);
  need(tcsetattr(slave, TCSANOW, &raw) == 0, "a terminal's mode");
  event = eventfd(0, EFD_NONBLOCK);
  events = epoll_create1(0);
  struct epoll_event want = {.events = EPOLLIN, .data.u32 = 7};
  need(event >= 0 && epoll_ctl(events, EPOLL_CTL_ADD, event, &want) == 0, "an epoll set");
  locked = open("/tmp/things.lock", O_RDWR | O_CREAT, 0600);
  need(locked >= 0 && flock(locked, LOCK_EX) == 0, "a lock");
}

static void pass(int from, int to, const char* what) {
  char byte = (char)('a' + round_now % 26), got = 0;
  need(write(from, &byte, 1) == 1 && read(to, &got, 1) == 1 && got == byte, what);
}

static void check_descriptors(void) {
  char byte, text[6];
  need(read(pair[1], &byte, 1) == 1 && byte == 'q' && write(pair[0], "q", 1) == 1,
       "bytes in a pair");
  pass(named, accepted, "a named socket");
  pass(accepted, named, "the answer of a named socket");
  need(read(fifo, &byte, 1) == 1 && byte == 'f' && write(fifo, "f", 1) == 1, "bytes in a FIFO");
  need(pread(memory, text, 6, 0) == 6 && memcmp(text, "memory", 6) == 0, "a memory file");
  pass(slave, master, "a terminal");
  pass(master, slave, "a terminal's input");
  struct termios raw;
  need(tcgetattr(slave, &raw) == 0 && (raw.c_lflag & (tcflag_t)ICANON) == 0, "a terminal's mode");
  uint64_t count = 3;
  struct epoll_event got = {0};
  need(write(event, &count, sizeof count) == sizeof count, "an event");
  need(epoll_wait(events, &got, 1, 1000) == 1 && got.data.u32 == 7, "an epoll set");
  need(read(event, &count, sizeof count) == sizeof count && count == 3, "an event's count");
  const int other = open("/tmp/things.lock", O_RDWR);
  need(flock(other, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK, "a lock");
  close(other);
}

// ---- files of the base ----------------------------------------------------------------------------

static void change_files(void) {
  need(unlink(LOWER "/gone") == 0, "a file of the base");
  need(unlink(LOWER "/folder/old") == 0 && rmdir(LOWER "/folder") == 0, "a folder of the base");
  need(mkdir(LOWER "/folder", 0755) == 0, "a folder in place of another");
  need(close(open(LOWER "/folder/new", O_WRONLY | O_CREAT, 0644)) == 0, "a new file");
}

static void check_files(void) {
  need(access(LOWER "/gone", F_OK) != 0, "the removal of a file");
  need(access(LOWER "/kept", F_OK) == 0, "a file of the base");
  int entries = 0;
  DIR* folder = opendir(LOWER "/folder");
  need(folder != NULL, "a folder");
  for (struct dirent* one; (one = readdir(folder)) != NULL;) entries += one->d_name[0] != '.';
  closedir(folder);
  need(entries == 1 && access(LOWER "/folder/new", F_OK) == 0, "the old folder's removal");
}

// ---- shared memory, a child -----------------------------------------------------------------------

static int semaphores;
static volatile uint64_t *segment, *posix;
static pid_t child;

/// Adds 1 to both counters whenever the parent raises semaphore 0, and answers by semaphore 1.
static void serve(void) {
  for (;;) {
    struct sembuf take = {0, -1, 0}, give = {1, 1, 0};
    if (semop(semaphores, &take, 1) != 0) {
      if (errno == EINTR) continue;
      _exit(3);
    }
    ++*segment;
    ++*posix;
    while (semop(semaphores, &give, 1) != 0 && errno == EINTR) {
    }
  }
}

static void share_memory(void) {
  const int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  segment = shmat(id, NULL, 0);
  need(id >= 0 && segment != (void*)-1, "a System V segment");
  const int fd = shm_open("/things", O_RDWR | O_CREAT, 0600);
  need(fd >= 0 && ftruncate(fd, 4096) == 0, "a POSIX segment");
  posix = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  need(posix != MAP_FAILED, "a POSIX segment");
  close(fd);
  semaphores = semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
  need(semaphores >= 0, "semaphores");
  child = fork();
  if (child == 0) serve();
}

static void check_memory(void) {
  struct sembuf give = {0, 1, 0}, take = {1, -1, 0};
  while (semop(semaphores, &give, 1) != 0) need(errno == EINTR, "semaphores");
  while (semop(semaphores, &take, 1) != 0) need(errno == EINTR, "semaphores");
  need(*segment == (uint64_t)round_now + 1, "a System V segment");
  need(*posix == (uint64_t)round_now + 1, "a POSIX segment");
}

// ---- signals and timers ---------------------------------------------------------------------------

static volatile sig_atomic_t alarms, ticks;
static int timer_descriptor;
static void on_alarm(int number) { (void)number, ++alarms; }
static void on_tick(int number) { (void)number, ++ticks; }

/// Timers of 20 ms, and a descriptor's timer of an hour: CRIU stops one with a period that has
/// expired (its issue 3162). SIGUSR2 and a queued signal with a value stay pending.
static void start_timers(void) {
  struct sigaction alarm_action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  struct sigaction tick_action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &alarm_action, NULL);
  sigaction(SIGRTMIN + 1, &tick_action, NULL);
  const struct itimerval every = {{0, PERIOD_NS / 1000}, {0, PERIOD_NS / 1000}};
  need(setitimer(ITIMER_REAL, &every, NULL) == 0, "an interval timer");
  timer_t timer;
  struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
  const struct itimerspec fine = {{0, PERIOD_NS}, {0, PERIOD_NS}};
  need(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0, "a POSIX timer");
  need(timer_settime(timer, 0, &fine, NULL) == 0, "a POSIX timer");
  timer_descriptor = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  const struct itimerspec hour = {{0, 0}, {3600, 0}};
  need(timerfd_settime(timer_descriptor, 0, &hour, NULL) == 0, "a timer's descriptor");
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigaddset(&blocked, SIGRTMIN);
  pthread_sigmask(SIG_BLOCK, &blocked, NULL);
  need(kill(getpid(), SIGUSR2) == 0, "a signal");
  need(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = QUEUED_VALUE}) == 0,
       "a queued signal");
}

static void check_timers(void) {
  const int alarms_before = alarms, ticks_before = ticks;
  for (int turn = 0; turn < 500 && (alarms == alarms_before || ticks == ticks_before); turn++) {
    sleep_ms(10);
  }
  need(alarms > alarms_before, "an interval timer");
  need(ticks > ticks_before, "a POSIX timer");
  struct itimerspec left;
  need(timerfd_gettime(timer_descriptor, &left) == 0 && left.it_value.tv_sec > 1800,
       "a timer's descriptor");
  sigset_t pending;
  need(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2) == 1, "a pending signal");
  need(sigismember(&pending, SIGRTMIN) == 1, "a queued signal");
}

static void check_queued_value(void) {
  sigset_t wanted;
  siginfo_t got;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGRTMIN);
  const struct timespec soon = {1, 0};
  int number;
  while ((number = sigtimedwait(&wanted, &got, &soon)) < 0 && errno == EINTR) {
  }
  need(number == SIGRTMIN && got.si_value.sival_int == QUEUED_VALUE, "a queued signal's value");
}

// ---- threads --------------------------------------------------------------------------------------

static sem_t asked, answered;
static __thread uint64_t of_this_thread;
static uint64_t of_the_thread;

static void* work(void* nothing) {
  for (;;) {
    while (sem_wait(&asked) != 0) {
    }
    of_the_thread = ++of_this_thread;
    sem_post(&answered);
  }
  return nothing;
}

static uint64_t check_threads(void) {
  sem_post(&asked);
  while (sem_wait(&answered) != 0) {
  }
  need(of_the_thread == (uint64_t)round_now + 1, "a thread's own variable");
  uint64_t sum = 0;
  int threads = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(4)
  for (int i = 0; i < 100000; i++) {
    sum += (uint64_t)i * (uint64_t)(round_now + 1);
    if (i == 0) threads = omp_get_num_threads();
  }
  need(threads == 4, "threads of OpenMP");
  return sum;
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 10;
  pthread_t thread;
  uint64_t result = 0;
  share_memory();  // the child is made before there are threads
  open_descriptors();
  change_files();
  start_timers();
  sem_init(&asked, 0, 0);
  sem_init(&answered, 0, 0);
  need(pthread_create(&thread, NULL, work, NULL) == 0, "a thread");
  for (round_now = 0; round_now < rounds; round_now++) {
    check_descriptors();
    check_files();
    check_memory();
    check_timers();
    result = result * 31 + check_threads();
    if (round_now % 20 == 0) {
      printf("round %d\n", round_now);
      fflush(stdout);
    }
  }
  check_queued_value();
  int status = 0;
  need(kill(child, SIGTERM) == 0 && waitpid(child, &status, 0) == child &&
           WTERMSIG(status) == SIGTERM,
       "a child");
  printf("RESULT %lx\n", result);
  return 0;
}
