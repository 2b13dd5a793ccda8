#pragma once

#include <memory>
#include <optional>

#include "client/api/filesystem.h"
#include "client/blocking/blocking_file.h"
#include "client/blocking/leased_names.h"

namespace stdchk::client {

/// An EmptyFile is a new file in a held directory, open for writing. Before its first byte, a close
/// adds a change to the batch. The first byte opens a session, and a BlockingFile takes over.
///
/// Threads: any; calls may overlap. Must not outlive its filesystem.
class EmptyFile final : public File {
 public:
  EmptyFile(BlockingFilesystem& filesystem, LeasedNames& names, EmptyOpenPtr open, bool append,
            Time opened)
      : filesystem_(filesystem),
        names_(names),
        open_(std::move(open)),
        append_(append),
        opened_(opened) {}
  ~EmptyFile() override;

  FileId id() const override { return open_->file; }
  Attributes attributes() const override;
  Result<std::size_t> read(std::uint64_t offset, MutableByteSpan out) override;
  Result<std::optional<std::uint64_t>> seek(std::uint64_t offset, Seek what) override;
  Status write(std::uint64_t offset, ByteSpan bytes) override;
  Status truncate(std::uint64_t size_bytes) override;
  Status punch(std::uint64_t from, std::uint64_t to) override;
  Result<MutableByteSpan> reserve(std::uint64_t offset, std::size_t bytes) override;
  Status submit(std::uint64_t offset, std::size_t bytes) override;
  Status sync() override;
  Status commit() override;
  Status commit_as(Version version) override;
  Status flush() override;
  bool dirty() const override;
  void abort() override;
  Status close() override;
  SessionFigures figures() const override;
  Status refresh() override;

  /// Returns the file with a session, which it gets now if it has none.
  Result<BlockingFile*> with_session() const;
  /// Returns nullptr while the file has no session.
  Result<BlockingFile*> session_if_any() const;

 private:
  bool has_session() const;

  BlockingFilesystem& filesystem_;
  LeasedNames& names_;
  const EmptyOpenPtr open_;
  const bool append_;
  const Time opened_;
  bool closed_ STDCHK_GUARDED_BY(engine_lock) = false;
  mutable std::unique_ptr<BlockingFile> file_ STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
