#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/histogram.h"

namespace stdchk::metrics {

/// Labels are pairs of name and value, in the order in which they are shown.
using Labels = std::vector<std::pair<std::string, std::string>>;

/// An Exposition collects figures and writes them in Prometheus's text format, version 0.0.4
/// (prometheus.io/docs/instrumenting/exposition_formats). HELP and TYPE come once for each metric,
/// then all its samples. Collecting and writing are separate steps, so that the thread that has the
/// figures need not write.
///
/// Owns: copies of all figures.
/// Threads: one at a time.
/// Errors: none. These are bugs: a malformed name, a counter's name without _total at its end, one
///   name with two types.
class Exposition {
 public:
  /// `common` are labels that every sample has, in front of its own.
  explicit Exposition(Labels common = {}) : common_(std::move(common)) {}

  void gauge(std::string_view name, std::string_view help, double value, Labels labels = {});
  void counter(std::string_view name, std::string_view help, double value, Labels labels = {});
  void histogram(std::string_view name, std::string_view help, const Distribution& value,
                 Labels labels = {});
  /// Overloads for whole numbers, such as bytes and chunks.
  void gauge(std::string_view name, std::string_view help, std::uint64_t value,
             Labels labels = {}) {
    gauge(name, help, static_cast<double>(value), std::move(labels));
  }
  void counter(std::string_view name, std::string_view help, std::uint64_t value,
               Labels labels = {}) {
    counter(name, help, static_cast<double>(value), std::move(labels));
  }

  std::string text() const;

 private:
  enum class Type : std::uint8_t { kGauge, kCounter, kHistogram };
  struct Sample {
    Labels labels;
    double value = 0;           ///< for a gauge or counter
    Distribution distribution;  ///< for a histogram
  };
  struct Family {
    std::string name;
    std::string help;
    Type type = Type::kGauge;
    std::vector<Sample> samples;
  };

  void add(Type type, std::string_view name, std::string_view help, Sample sample);
  void write(std::string& out, std::string_view name, const Labels& own, std::string_view bound,
             double value) const;
  void write(std::string& out, const Family& family) const;

  Labels common_;
  std::vector<Family> families_;  ///< in the order of their first samples
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace stdchk::metrics
