#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/types.h"
#include "tools/problem.h"

namespace stdchk::tools {

/// How alike the images of a series are, for one way to cut them: a line of the papers' Tables 3 to
/// 7.
struct Similarity {
  std::string technique;           ///< "FsCH", "CbCH SHA-1, overlap", ..., "stdchk"
  std::string parameters;          ///< "256 KiB", "m 20, k 14", "mean 256 KiB"
  std::uint64_t window_bytes = 0;  ///< m; 0: not of this technique
  std::uint32_t bits = 0;          ///< k; 0: not of this technique
  std::uint64_t chunk_bytes = 0;   ///< FsCH: of each; stdchk: the mean that is aimed at
  /// The share of an image's bytes in chunks that the image before it has, averaged over all images
  /// but the first.
  double similarity = 0;
  double bytes_per_s = 0;  ///< cutting and naming, one thread
  double chunk_mean = 0;   ///< bytes
  std::uint64_t chunk_min = 0;
  std::uint64_t chunk_max = 0;
  std::uint64_t image_bytes = 0;  ///< looked at, of all images together
};

struct SimilarityOptions {
  std::vector<std::string> files;  ///< in the order in which they were saved
  /// Of each image what the slow techniques look at, from its beginning: SHA-1 windows, and Rabin
  /// windows that overlap. 0: all.
  std::uint64_t sample_bytes = 0;
  std::vector<std::uint32_t> windows;  ///< m
  std::vector<std::uint32_t> bits;     ///< k
};

/// Measures all techniques. `progress` is told the share of the work that is done, 0 to 1.
Outcome<std::vector<Similarity>> measure_similarity(const SimilarityOptions& options,
                                                    const std::function<void(double)>& progress);

/// What to set, and why: one or two sentences.
struct Advice {
  std::string chunking;  ///< for --chunking
  std::string why;
};
Advice advise_chunking(const std::vector<Similarity>& measured);

}  // namespace stdchk::tools
