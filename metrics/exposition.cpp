#include "metrics/exposition.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/base/assert.h"

namespace stdchk::metrics {
namespace {

bool is_name(std::string_view name, bool colons) {
  const auto letter = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colons && c == ':');
  };
  const auto good = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && letter(name.front()) && std::ranges::all_of(name, good);
}

/// Escapes as Prometheus asks. `quoted`: within a label's value, where quotation marks are escaped
/// too.
void append_escaped(std::string& out, std::string_view text, bool quoted) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (quoted && c == '"')) out += '\\';
    out += c;
  }
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void Exposition::gauge(std::string_view name, std::string_view help, double value, Labels labels) {
  add(Type::kGauge, name, help, {std::move(labels), value, {}});
}

void Exposition::counter(std::string_view name, std::string_view help, double value,
                         Labels labels) {
  STDCHK_ASSERT(name.ends_with("_total"));
  add(Type::kCounter, name, help, {std::move(labels), value, {}});
}

void Exposition::histogram(std::string_view name, std::string_view help, const Distribution& value,
                           Labels labels) {
  add(Type::kHistogram, name, help, {std::move(labels), 0, value});
}

void Exposition::add(Type type, std::string_view name, std::string_view help, Sample sample) {
  STDCHK_ASSERT(is_name(name, true));
  for (const auto& [label, value] : sample.labels) STDCHK_ASSERT(is_name(label, false));
  auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    found = by_name_.emplace(name, families_.size()).first;
    families_.push_back({std::string(name), std::string(help), type, {}});
  }
  Family& family = families_[found->second];
  STDCHK_ASSERT(family.type == type);
  family.samples.push_back(std::move(sample));
}

/// Writes one line. `bound` is the label "le" of a histogram's bucket; empty: no such label.
void Exposition::write(std::string& out, std::string_view name, const Labels& own,
                       std::string_view bound, double value) const {
  out += name;
  char before = '{';
  const auto append = [&](std::string_view label, std::string_view text) {
    out += before;
    before = ',';
    out += label;
    out += "=\"";
    append_escaped(out, text, true);
    out += '"';
  };
  for (const auto& [label, text] : common_) append(label, text);
  for (const auto& [label, text] : own) append(label, text);
  if (!bound.empty()) append("le", bound);
  if (before == ',') out += '}';
  out += ' ';
  out += number(value);
  out += '\n';
}

void Exposition::write(std::string& out, const Family& family) const {
  constexpr std::string_view kTypes[] = {"gauge", "counter", "histogram"};
  out += "# HELP " + family.name + ' ';
  append_escaped(out, family.help, false);
  out += "\n# TYPE " + family.name + ' ';
  out += kTypes[static_cast<std::size_t>(family.type)];
  out += '\n';
  for (const Sample& sample : family.samples) {
    if (family.type != Type::kHistogram) {
      write(out, family.name, sample.labels, {}, sample.value);
      continue;
    }
    const Distribution& all = sample.distribution;
    const auto count = static_cast<double>(all.count);
    const std::string bucket = family.name + "_bucket";
    for (const auto& each : all.buckets) {
      write(out, bucket, sample.labels, number(each.bound), static_cast<double>(each.count));
    }
    write(out, bucket, sample.labels, "+Inf", count);
    write(out, family.name + "_sum", sample.labels, {}, all.sum);
    write(out, family.name + "_count", sample.labels, {}, count);
  }
}

std::string Exposition::text() const {
  std::string out;
  for (const Family& family : families_) write(out, family);
  return out;
}

}  // namespace stdchk::metrics
