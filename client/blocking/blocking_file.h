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
  /// A writer: `session` counts this opener already.
  BlockingFile(BlockingFilesystem& filesystem, SessionPtr session, bool append, Time opened);
  /// A reader; see OpenFile.
  BlockingFile(BlockingFilesystem& filesystem, FileId file, SessionPtr session, VersionMapPtr map,
               Time opened);
  ~BlockingFile() override;

  FileId id() const override { return file_.id(); }
  Attributes attributes() const override;
  Result<ReadView> view(std::uint64_t offset, std::size_t bytes);
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
  Result<std::unique_ptr<File>> find_grown() override;
  void follow(const File& grown) override;

  /// Succeeds when a reader knows its version; kWouldBlock before.
  Status readable(Lock& lock) const STDCHK_REQUIRES(engine_lock) { return file_.opened(lock); }
  Status write_adopted(WindowBuffer& buffer, std::uint64_t offset, ByteSpan bytes);
  /// Says that the file is an A.Ni.Tj image: its fsync stores bytes but does not commit.
  void set_image(bool image) { image_ = image; }
  /// Says that the open itself has changed the file: created or truncated it.
  void set_changed(bool changed) STDCHK_REQUIRES(engine_lock) { changed_ = changed; }

 private:
  class Measured;
  class WindowWait;
  Status usable() const STDCHK_REQUIRES(engine_lock);
  Status writable() const STDCHK_REQUIRES(engine_lock);
  void count_written(std::uint64_t bytes, Time began) STDCHK_REQUIRES(engine_lock);
  void count_close() STDCHK_REQUIRES(engine_lock);
  template <class Progress, class Step>
  Status repeat_while_progressing(Lock& lock, Progress progress, Step step,
                                  CondVar* changed = nullptr) STDCHK_REQUIRES(engine_lock);
  Status wait_for(Lock& lock, const std::function<Result<CompletionPtr>()>& begin)
      STDCHK_REQUIRES(engine_lock);
  Result<CompletionPtr> begin_commit(bool end) STDCHK_REQUIRES(engine_lock);
  bool dirty(Lock& lock) const STDCHK_REQUIRES(engine_lock);
  bool early() const STDCHK_REQUIRES(engine_lock);
  Status promise(const Result<CompletionPtr>& begun) STDCHK_REQUIRES(engine_lock);
  Status leave(Lock& lock) STDCHK_REQUIRES(engine_lock);
  Status redundant(Lock& lock) STDCHK_REQUIRES(engine_lock);

  BlockingFilesystem& filesystem_;
  OpenFile file_;
  const Time opened_;
  bool image_ = false;
  /// Bytes were written by this opener since its last commit.
  bool changed_ STDCHK_GUARDED_BY(engine_lock) = false;
  bool closed_ STDCHK_GUARDED_BY(engine_lock) = false;
  /// Figures of the session, when this file was closed.
  SessionFigures figures_ STDCHK_GUARDED_BY(engine_lock);
  // For OT (observed throughput): what this opener has written since its last close or commit, and
  // since when.
  std::uint64_t written_bytes_ STDCHK_GUARDED_BY(engine_lock) = 0;
  Time written_from_ STDCHK_GUARDED_BY(engine_lock){};
};

}  // namespace stdchk::client
