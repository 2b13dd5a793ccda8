#include "client/blocking/empty_file.h"

#include <utility>

namespace stdchk::client {

EmptyFile::~EmptyFile() {
  // The destructor of the file with a session takes the lock.
  std::unique_ptr<BlockingFile> file;
  const Lock lock(filesystem_.engine().shared().mutex);
  file = std::move(file_);
  if (!closed_) names_.calls().drop(*open_);
  // An opening that nobody took ends with its session.
  if (file == nullptr && !closed_ && open_->opening && open_->opening->session) {
    file = std::make_unique<BlockingFile>(filesystem_, std::move(open_->opening->session), append_,
                                          opened_);
  }
}

bool EmptyFile::has_session() const {
  const Lock lock(filesystem_.engine().shared().mutex);
  return file_ != nullptr || open_->opening;
}

Result<BlockingFile*> EmptyFile::session_if_any() const {
  return has_session() ? with_session() : Result<BlockingFile*>{nullptr};
}

Result<BlockingFile*> EmptyFile::with_session() const {
  Lock lock(filesystem_.engine().shared().mutex);
  if (closed_) return fail(Code::kInvalidArgument, "client.file: closed");
  if (file_ != nullptr) return file_.get();
  STDCHK_TRY(names_.calls().start_session(*open_));
  const auto opening = open_->opening;
  STDCHK_TRY(filesystem_.wait(
      lock, filesystem_.deadline(),
      [&]() STDCHK_REQUIRES(engine_lock) -> Status {
        if (!opening->status.has_value()) return fail(Code::kWouldBlock, "client.open");
        return *opening->status;
      },
      &opening->answered));
  if (file_ != nullptr) return file_.get();  // another thread came first
  SessionPtr session = std::move(opening->session);
  if (session == nullptr) return fail(Code::kStale, "client.open");
  session->note_opener(append_);
  const bool created = opening->created;
  file_ = std::make_unique<BlockingFile>(filesystem_, std::move(session), append_, opened_);
  file_->set_changed(created);
  names_.calls().drop(*open_);
  BlockingFile* const file = file_.get();
  if (const auto times = std::exchange(open_->times, std::nullopt)) {
    const Unlocked unlocked(lock);
    STDCHK_TRY(filesystem_.set_attributes(*times));
  }
  return file;
}

Attributes EmptyFile::attributes() const {
  if (const auto file = session_if_any(); file && *file != nullptr) return (*file)->attributes();
  const Lock lock(filesystem_.engine().shared().mutex);
  if (closed_) return {};
  return names_.known(open_->file).value_or(open_->attributes);
}

Result<std::size_t> EmptyFile::read(std::uint64_t offset, MutableByteSpan out) {
  STDCHK_ASSIGN(BlockingFile* const file, session_if_any());
  return file == nullptr ? Result<std::size_t>{0} : file->read(offset, out);
}

Result<std::optional<std::uint64_t>> EmptyFile::seek(std::uint64_t offset, Seek what) {
  STDCHK_ASSIGN(BlockingFile* const file, session_if_any());
  if (file == nullptr) return std::optional<std::uint64_t>{};
  return file->seek(offset, what);
}

Status EmptyFile::write(std::uint64_t offset, ByteSpan bytes) {
  STDCHK_ASSIGN(BlockingFile* const file, with_session());
  return file->write(offset, bytes);
}

Status EmptyFile::truncate(std::uint64_t size_bytes) {
  if (size_bytes == 0 && !has_session()) return {};
  STDCHK_ASSIGN(BlockingFile* const file, with_session());
  return file->truncate(size_bytes);
}

Status EmptyFile::punch(std::uint64_t from, std::uint64_t to) {
  STDCHK_ASSIGN(BlockingFile* const file, session_if_any());
  return file == nullptr ? Status{} : file->punch(from, to);
}

Result<MutableByteSpan> EmptyFile::reserve(std::uint64_t offset, std::size_t bytes) {
  STDCHK_ASSIGN(BlockingFile* const file, with_session());
  return file->reserve(offset, bytes);
}

Status EmptyFile::submit(std::uint64_t offset, std::size_t bytes) {
  STDCHK_ASSIGN(BlockingFile* const file, with_session());
  return file->submit(offset, bytes);
}

Status EmptyFile::sync() {
  STDCHK_ASSIGN(BlockingFile* const file, session_if_any());
  return file == nullptr ? commit() : file->sync();
}

Status EmptyFile::commit() {
  STDCHK_ASSIGN(BlockingFile* const file, session_if_any());
  if (file != nullptr) return file->commit();
  STDCHK_TRY(names_.store(*open_));
  // The lease may have ended meanwhile, and then the file has a session.
  STDCHK_ASSIGN(BlockingFile* const late, session_if_any());
  return late == nullptr ? Status{} : late->commit();
}

Status EmptyFile::commit_as(Version version) {
  STDCHK_ASSIGN(BlockingFile* const file, with_session());
  return file->commit_as(version);
}

Status EmptyFile::flush() {
  STDCHK_ASSIGN(BlockingFile* const file, session_if_any());
  return file == nullptr ? commit() : file->flush();
}

bool EmptyFile::dirty() const {
  if (const auto file = session_if_any(); file && *file != nullptr) return (*file)->dirty();
  const Lock lock(filesystem_.engine().shared().mutex);
  return !closed_ && !open_->is_stored;
}

void EmptyFile::abort() {
  if (const auto file = session_if_any(); file && *file != nullptr) return (*file)->abort();
  const Lock lock(filesystem_.engine().shared().mutex);
  if (!open_->is_stored) names_.calls().drop(*open_);
}

Status EmptyFile::close() {
  STDCHK_ASSIGN(BlockingFile * file, session_if_any());
  Status status;
  if (file == nullptr) {
    status = names_.store(*open_);
    STDCHK_ASSIGN(file, session_if_any());
  }
  if (file != nullptr) status = file->close();
  const Lock lock(filesystem_.engine().shared().mutex);
  names_.calls().drop(*open_);
  closed_ = true;
  return status;
}

SessionFigures EmptyFile::figures() const {
  BlockingFile* file = nullptr;
  {
    const Lock lock(filesystem_.engine().shared().mutex);
    file = file_.get();
  }
  return file == nullptr ? SessionFigures{} : file->figures();
}

Status EmptyFile::refresh() {
  STDCHK_ASSIGN(BlockingFile* const file, session_if_any());
  return file == nullptr ? commit() : file->refresh();
}

}  // namespace stdchk::client
