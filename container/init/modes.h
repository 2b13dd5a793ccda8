#pragma once

/// The modes of stdchk-box-init. Each returns the exit status. Nothing here allocates much or
/// throws: it is process 1.
namespace stdchk::container {

inline constexpr int kUsage = 2;

/// Files of a container that process 1 and the node share.
inline constexpr const char* kCommands = "/.stdchk/commands";  ///< N: words with the byte 0 behind
inline constexpr const char* kEnded = "/.stdchk/ended";        ///< N: an exit status
inline constexpr const char* kAsks = "/.stdchk/asks";          ///< NAME: "HOST COMMAND"
inline constexpr const char* kResults = "/.stdchk/results";    ///< NAME: an exit status
inline constexpr const char* kSocket = "/.stdchk/socket";    ///< programs ask for checkpoints here
inline constexpr const char* kRequest = "/.stdchk/request";  ///< number of the newest request
inline constexpr const char* kAnswer = "/.stdchk/answer";    ///< "WORD NUMBER"
inline constexpr const char* kEnvironment = "/.stdchk/environment";
inline constexpr const char* kFolder = "/.stdchk/directory";  ///< where commands run
inline constexpr const char* kUser = "/.stdchk/user";         ///< "UID GID" of commands

int run_enter(int argc, char** argv);
int run_init();
int run_agent(int argc, char** argv);
int run_checkpoint();

}  // namespace stdchk::container
