#pragma once

#include <memory>

#include "client/api/filesystem.h"
#include "client/blocking/blocking_filesystem.h"
#include "client/blocking/open_file.h"

namespace stdchk::client {

/// A BlockingFile is an OpenFile whose calls wait.
///
/// Threads: any; calls may overlap. Must not outlive its filesystem.
class BlockingFile final : public File {
 public:
  BlockingFile(BlockingFilesystem& filesystem, std::unique_ptr<OpenFile> file, Time opened);
  ~BlockingFile() override;

  FileId id() const override { return id_; }
  Attributes attributes() const override;
  Result<ReadView> view(std::uint64_t offset, std::size_t bytes);
  Result<std::size_t> read(std::uint64_t offset, MutableByteSpan out) override;
  Status write(std::uint64_t offset, ByteSpan bytes) override;
  Status truncate(std::uint64_t size_bytes) override;
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

  Status write_adopted(WindowBuffer& buffer, std::uint64_t offset, ByteSpan bytes);
  /// Says that the file is an A.Ni.Tj image: its fsync stores bytes but does not commit.
  void set_image(bool image) { image_ = image; }
  /// Says that the open itself has changed the file: created or truncated it.
  void set_changed(bool changed) { changed_ = changed; }

 private:
  class Measured;
  class WindowWait;
  Status usable() const;
  Status writable() const;
  void count_written(std::uint64_t bytes, Time began);
  void count_close();
  template <class Progress, class Step>
  Status while_it_moves(Lock& lock, Progress progress, Step step);
  Status wait_for(Lock& lock, const std::function<Result<CompletionPtr>()>& begin);
  Result<CompletionPtr> begin_commit(bool end);
  bool dirty(Lock& lock) const;
  bool early() const;
  Status promise(const Result<CompletionPtr>& begun);
  Status leave(Lock& lock);
  Status redundant(Lock& lock);

  BlockingFilesystem& filesystem_;
  const std::unique_ptr<OpenFile> file_;
  const FileId id_;
  const Time opened_;
  bool image_ = false;
  bool changed_ = false;  ///< bytes were written by this opener since its last commit
  bool closed_ = false;
  SessionFigures figures_;  ///< of the session, when this file was closed
  // For OT (observed throughput): what this opener has written since its last close or commit, and
  // since when.
  std::uint64_t written_bytes_ = 0;
  Time written_from_{};
};

}  // namespace stdchk::client
