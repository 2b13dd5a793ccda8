#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/values/types.h"

/// Functions that the benches share: test data, processor time, and fatal errors.
namespace stdchk::bench {

/// Prints `what` on standard error and ends the program.
[[noreturn]] void give_up(const std::string& what);
/// As give_up(), and adds the text of errno.
[[noreturn]] void give_up_call(const std::string& what);

template <class T>
T must(Result<T> result) {
  if (!result.has_value()) give_up(describe(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// Fills with incompressible bytes that differ for each seed.
void fill_random(MutableByteSpan bytes, std::uint64_t seed);

/// Turns random bytes into another image at little cost. Changes a word in each page, so that no
/// chunk equals one of the previous image.
void change_pages(MutableByteSpan bytes, std::uint64_t seed);

/// Writes a new file in calls of 1 MiB and closes it. `is_synced`: calls fsync before the close.
void write_new_file(const std::string& path, ByteSpan bytes, bool is_synced);

/// Random memory, on huge pages if possible, allocated for the life of the process.
MutableByteSpan random_memory(std::size_t bytes, std::uint64_t seed);

/// Takes and frees `bytes` of memory, so that a virtual machine gets them from its host before the
/// measurement.
void warm_free_memory(std::size_t bytes);

/// Reads all of `bytes` as fast as one thread can: the ceiling of code that looks at each byte.
std::uint64_t sum_words(ByteSpan bytes);

/// CPU seconds that all threads of process `pid` have used; 0: this process.
double cpu_seconds(pid_t pid);
double cpu_seconds(const std::vector<pid_t>& pids);
/// CPU seconds that this thread has used.
double thread_seconds();
/// GB per second of this thread's processor time in `work`. Processor time hides other load.
double thread_rate(std::size_t bytes, const std::function<void()>& work);

/// The resident memory of this process.
std::uint64_t resident_bytes();

/// Seconds since 1970, for the time stamp of a figure.
double wall_seconds();

}  // namespace stdchk::bench
