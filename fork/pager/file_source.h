#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/descriptor.h"
#include "fork/pager/source.h"

namespace stdchk::pager {

/// A FileSource supplies the bytes of an open file of this host, such as a parent's frozen copy.
///
/// Owns: the file.
/// Errors: a read of fewer bytes is kCorrupt, because the content must not change.
/// Not: a check of the bytes.
class FileSource final : public Source {
 public:
  /// `file` must be a regular file or a memory file, open for reading.
  static Result<std::shared_ptr<FileSource>> create(Descriptor file, std::string name);

  std::uint64_t size_bytes() const override { return size_bytes_; }
  const std::string& name() const override { return name_; }
  Status read(std::uint64_t offset, MutableByteSpan out) override;
  bool is_hole(std::uint64_t offset, std::uint64_t bytes) override;

  int file() const { return file_.get(); }
  /// Equal for two descriptors of one unchanged file.
  const std::string& key() const { return key_; }

 private:
  FileSource(Descriptor file, std::string name, std::uint64_t size_bytes, std::string key)
      : file_(std::move(file)),
        name_(std::move(name)),
        size_bytes_(size_bytes),
        key_(std::move(key)) {}

  const Descriptor file_;
  const std::string name_;
  const std::uint64_t size_bytes_;
  const std::string key_;
};

}  // namespace stdchk::pager
