#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/base/problem.h"

namespace stdchk::tools {

/// A Scratch is a folder of this run in a measured file system.
///
/// Owns: the folder and its content. The destructor removes both, and reports on standard error
/// what it could not remove.
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
  std::uint32_t ranks = 0;        ///< ranks that write one image each at once
};

/// An ImageBench writes images into a folder as the ranks of a program do, and reads them back.
///
/// Owns: a buffer of one block for each rank; the images until remove(). The folder's Scratch must
/// outlive them.
/// Threads: one thread calls; during a call each rank has its own thread.
/// Errors: the system call's error with the path; "ended by a signal" when asked_to_end().
/// Not: limited in time. A hanging file system blocks the caller.
class ImageBench {
 public:
  explicit ImageBench(const ImageLoad& load);

  /// Bytes a second of all ranks together.
  struct WriteRates {
    double closed = 0;  ///< until the last close() returned
    double stored = 0;  ///< until all is stored: opened again and synced
  };
  /// Writes one image per rank. All pages of all images of all rounds differ.
  Outcome<WriteRates> write(const std::string& directory, std::uint32_t round);
  /// Reads and compares the images of the last write(). Returns bytes a second.
  Outcome<double> read();
  void remove();

 private:
  /// A rank with its buffer, its image of this round, and the result.
  struct Rank {
    std::uint32_t number = 0;
    std::vector<std::byte> block;  ///< random; each page is stamped before a write
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
