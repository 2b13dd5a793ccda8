#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>

#include "tests/support/catch.h"

namespace stdchk::test {

/// A CapturedLog captures standard error, and so the log, while it lives.
class CapturedLog {
 public:
  CapturedLog() : before_(::dup(STDERR_FILENO)), file_(::memfd_create("log", 0)) {
    REQUIRE(before_ >= 0);
    REQUIRE(file_ >= 0);
    REQUIRE(::dup2(file_, STDERR_FILENO) == STDERR_FILENO);
  }
  ~CapturedLog() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(file_);
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  /// Counts `what` in the text captured since the last forget().
  std::size_t count(const std::string& what) const {
    const std::string text = this->text();
    std::size_t found = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  }
  void forget() { begin_ += static_cast<off_t>(text().size()); }

 private:
  std::string text() const {
    std::string out;
    std::array<char, 4096> part{};
    for (off_t at = begin_;;) {
      const ssize_t got = ::pread(file_, part.data(), part.size(), at);
      if (got <= 0) return out;
      out.append(part.data(), static_cast<std::size_t>(got));
      at += got;
    }
  }

  const int before_;
  const int file_;
  off_t begin_ = 0;
};

}  // namespace stdchk::test
