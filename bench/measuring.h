#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/types.h"

/// What the benches share: the bytes they write, processor time, and how they end.
namespace stdchk::bench {

/// Says `what` on standard error and ends the program.
[[noreturn]] void give_up(const std::string& what);
/// The same, with the reason that a call of the system has left in errno.
[[noreturn]] void give_up_call(const std::string& what);

template <class T>
T must(Result<T> result) {
  if (!result.has_value()) give_up(describe(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// Incompressible bytes, others for each seed.
void fill_random(MutableByteSpan bytes, std::uint64_t seed);

/// Makes another image of random bytes, at little cost: a word in each page changes, so that no
/// chunk is like one of the image before.
void change_pages(MutableByteSpan bytes, std::uint64_t seed);

/// A file that was not there, in calls of 1 MiB, until it is closed; `is_synced`: with fsync
/// before.
void write_new_file(const std::string& path, ByteSpan bytes, bool is_synced);

/// Memory on huge pages where there are any, random and so touched; for the life of the process.
MutableByteSpan random_memory(std::size_t bytes, std::uint64_t seed);

/// Takes and frees as much memory: what is taken next is with this machine, not still with its
/// host.
void warm_free_memory(std::size_t bytes);

/// Reads all of `bytes`, as fast as one thread can: the ceiling of what looks at each byte.
std::uint64_t sum_words(ByteSpan bytes);

/// CPU seconds that process `pid` has used, all its threads; 0: this one.
double cpu_seconds(pid_t pid);
double cpu_seconds(const std::vector<pid_t>& pids);
/// CPU seconds that this thread has used.
double thread_seconds();
/// The GB a second of `work`, of this thread's processor time, so that a busy machine counts less.
double thread_rate(std::size_t bytes, const std::function<void()>& work);

/// Memory of this process that is there.
std::uint64_t resident_bytes();

/// Seconds since 1970: when a figure was taken.
double wall_seconds();

}  // namespace stdchk::bench
