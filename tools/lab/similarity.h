#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/values/types.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// The similarity of the images of a series for one way to cut them: a line of the papers' Tables 3
/// to 7.
struct Similarity {
  std::string technique;           ///< "FsCH", "CbCH SHA-1, overlap", ..., "stdchk"
  std::string parameters;          ///< "256 KiB", "m 20, k 14", "mean 256 KiB"
  std::uint64_t window_bytes = 0;  ///< m; 0: the technique has none
  std::uint32_t bits = 0;          ///< k; 0: the technique has none
  std::uint64_t chunk_bytes = 0;   ///< FsCH: the chunk size; stdchk: the wanted mean
  /// The share of an image's bytes in chunks that the image before has, averaged over all images
  /// except the first.
  double similarity = 0;
  double bytes_per_s = 0;  ///< cutting and naming, on one thread
  double chunk_mean = 0;   ///< in bytes
  std::uint64_t chunk_min = 0;
  std::uint64_t chunk_max = 0;
  std::uint64_t image_bytes = 0;  ///< examined bytes of all images together
};

struct SimilarityOptions {
  std::vector<std::string> files;  ///< oldest first
  /// How many bytes at the beginning of each image the slow techniques examine: SHA-1 windows, and
  /// overlapping Rabin windows. 0: all.
  std::uint64_t sample_bytes = 0;
  std::vector<std::uint32_t> windows;  ///< values of m
  std::vector<std::uint32_t> bits;     ///< values of k
};

/// Measures all techniques. `progress` gets the completed share of the work, 0 to 1.
Outcome<std::vector<Similarity>> measure_similarity(const SimilarityOptions& options,
                                                    const std::function<void(double)>& progress);

/// The advised setting, with its reason in one or two sentences.
struct Advice {
  std::string chunking;  ///< value for --chunking
  std::string why;
};
Advice advise_chunking(const std::vector<Similarity>& measured);

}  // namespace stdchk::tools
