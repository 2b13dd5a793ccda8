// stdchk-box-init: the program inside a container. It is linked statically, because a container's
// file system may be of any distribution. Its name or its first argument selects a mode:
//
//   enter    on the host: makes namespaces and mounts, prints the process id of process 1, and
//   becomes it init     process 1: runs the commands that the node leaves in /.stdchk/commands,
//   answers programs agent    HOST COMMAND: the remote shell of MPI launchers; asks the node to run
//   a command in another container checkpoint  asks for a checkpoint of the whole job, and waits
//   until the job goes on
//
// container/README.md lists the files in /.stdchk.
#include <cstdio>
#include <cstring>

#include "container/init/modes.h"

int main(int argc, char** argv) {
  using namespace stdchk::container;
  const char* const slash = std::strrchr(argv[0], '/');
  const char* mode = slash == nullptr ? argv[0] : slash + 1;
  if (std::strcmp(mode, "stdchk-box-init") == 0) {
    if (argc < 2) return kUsage;
    mode = argv[1];
    --argc;
    ++argv;
  }
  if (std::strcmp(mode, "enter") == 0) return run_enter(argc, argv);
  if (std::strcmp(mode, "init") == 0) return run_init();
  if (std::strcmp(mode, "agent") == 0) return run_agent(argc, argv);
  if (std::strcmp(mode, "checkpoint") == 0) return run_checkpoint();
  std::fprintf(stderr, "stdchk-box-init: the mode %s is not known\n", mode);
  return kUsage;
}
