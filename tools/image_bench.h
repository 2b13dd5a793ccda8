#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/problem.h"

namespace stdchk::tools {

/// A Scratch is a folder of this run in a file system that is measured.
///
/// Owns: the folder and all that is in it; both go with it. What stays is said on standard error.
class Scratch {
 public:
  static Outcome<std::unique_ptr<Scratch>> make_in(const std::string& directory);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit Scratch(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// A Problem when the file system of `directory` has less than `wanted` bytes free. `remedy` says
/// how to use less.
Outcome<void> check_room(const std::string& directory, std::uint64_t wanted,
                         const std::string& remedy);

struct ImageLoad {
  std::uint64_t image_bytes = 0;
  std::uint64_t block_bytes = 0;  ///< of one call
  std::uint32_t ranks = 0;        ///< that write an image each, at once
};

/// An ImageBench writes images into a folder as the ranks of a program do, and reads them back.
///
/// Owns: a buffer of one block for each rank; the images until remove(), which their folder's
/// Scratch outlives.
/// Threads: one thread calls; each rank has one of its own during a call.
/// Errors: what a system call said, with the path; "ended by a signal" when asked_to_end().
/// Not: a limit of time. A file system that hangs keeps the caller.
class ImageBench {
 public:
  explicit ImageBench(const ImageLoad& load);

  /// Bytes a second of all ranks together.
  struct WriteRates {
    double closed = 0;  ///< until the last close() returned
    double stored = 0;  ///< until all is stored: opened again and synced
  };
  /// No two pages of all images of all rounds are equal.
  Outcome<WriteRates> write(const std::string& directory, std::uint32_t round);
  /// What write() has written last, held against what it was. Bytes a second.
  Outcome<double> read();
  void remove();

 private:
  /// One rank: its buffer, its image of this round, and how that went.
  struct Rank {
    std::uint32_t number = 0;
    std::vector<std::byte> block;  ///< random; the stamps come on top
    std::string path;
    Outcome<void> done;
  };
  using Stamp = std::array<std::uint64_t, 3>;

  template <class Work>
  Outcome<void> do_all(const Work& work);
  Outcome<void> write_image(Rank& rank);
  static Outcome<void> store_image(Rank& rank);
  Outcome<void> read_image(Rank& rank);
  Stamp stamp(const Rank& rank, std::uint64_t page) const { return {rank.number, round_, page}; }
  std::size_t block_at(std::uint64_t at) const;
  double bytes() const { return static_cast<double>(load_.image_bytes) * load_.ranks; }

  ImageLoad load_;
  std::uint32_t round_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace stdchk::tools
