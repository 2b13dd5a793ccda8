#ifndef STDCHK_JOB_H
#define STDCHK_JOB_H

/* The call by which a program in a container of `stdchk run` asks for a checkpoint of its whole
 * job. C and C++; nothing has to be linked. A program that never calls it is saved as well. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum stdchk_job_outcome {
  STDCHK_JOB_FAILED = -1,   /* no answer; errno says why. ENOENT: this is no container of a job */
  STDCHK_JOB_NOT_TAKEN = 0, /* the checkpoint was given up; the set before it stands */
  STDCHK_JOB_GOES_ON = 1,   /* the set is complete in the pool */
  STDCHK_JOB_RESTARTED = 2  /* the job was restarted from this set, while this call waited */
};

/* Asks for a checkpoint of the job, and blocks until its set is complete or given up. Each rank may
 * call it, or one of them for all. `number`, unless it is null, gets the number of the request in
 * this container. Threads: any. Not: a signal handler may not call it. */
static inline enum stdchk_job_outcome stdchk_job_checkpoint(unsigned long long* number) {
  struct sockaddr_un address;
  char text[64];
  size_t filled = 0;
  int saved_errno;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return STDCHK_JOB_FAILED;
  memset(&address, 0, sizeof address);
  memset(text, 0, sizeof text);
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, "/.stdchk/socket");
  if (connect(fd, (const struct sockaddr*)&address, sizeof address) == 0) {
    /* The container's process 1 sends "WORD NUMBER" and closes the connection. */
    for (errno = EPROTO; filled < sizeof text - 1;) {
      const ssize_t n = read(fd, text + filled, sizeof text - 1 - filled);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      filled += (size_t)n;
    }
  }
  saved_errno = errno;
  close(fd);
  errno = saved_errno;
  if (number != NULL) {
    const char* const space = strchr(text, ' ');
    *number = space == NULL ? 0 : strtoull(space, NULL, 10);
  }
  if (strncmp(text, "goes-on ", 8) == 0) return STDCHK_JOB_GOES_ON;
  if (strncmp(text, "restarted ", 10) == 0) return STDCHK_JOB_RESTARTED;
  if (strncmp(text, "not-taken ", 10) == 0) return STDCHK_JOB_NOT_TAKEN;
  return STDCHK_JOB_FAILED;
}

#endif
