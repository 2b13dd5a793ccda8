// stdchk for C++17 programs: classes over stdchk.h. Header only; link libstdchk.
//
//   stdchk::Pool pool;                                   // STDCHK_MANAGER, STDCHK_SECRET_FILE
//   auto file = pool.open("run/heat.N0.T1", O_WRONLY | O_CREAT | O_TRUNC);
//   file.write(bytes, count);
//   file.close();                                        // the image is visible from here on
//
// Errors: each call throws stdchk::Error when it fails. Threads: as stdchk.h says.
#ifndef STDCHK_HPP
#define STDCHK_HPP

#include <fcntl.h>
#include <stdchk.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace stdchk {

/// An Error is a failed call: code() has the errno, number() the enum stdchk_code, and what()
/// begins with the sentence of stdchk_error().
class Error : public std::system_error {
 public:
  Error()
      : std::system_error(errno, std::generic_category(), stdchk_error()),
        number_(stdchk_error_code()) {}
  int number() const noexcept { return number_; }
  bool is_transient() const noexcept { return stdchk_code_is_transient(number_) != 0; }

 private:
  int number_;
};

namespace detail {
template <class T>
T checked(T result) {
  if (result < 0) throw Error();
  return result;
}
template <class T>
T* checked(T* result) {
  if (result == nullptr) throw Error();
  return result;
}
struct Deleter {
  void operator()(stdchk_pool* pool) const { stdchk_disconnect(pool); }
  void operator()(stdchk_file* file) const { stdchk_abort(file); }
  void operator()(stdchk_dir* dir) const { stdchk_closedir(dir); }
};
}  // namespace detail

/// A File is an open file. Without close(), its destructor drops what is not committed.
class File {
 public:
  explicit File(stdchk_file* file) : file_(file) {}

  void write(const void* bytes, std::size_t count) {
    detail::checked(stdchk_write(file_.get(), bytes, count));
  }
  void pwrite(const void* bytes, std::size_t count, std::uint64_t offset) {
    detail::checked(stdchk_pwrite(file_.get(), bytes, count, offset));
  }
  /// Returns the number of bytes read; fewer than `count` only at the end of the file.
  std::size_t read(void* bytes, std::size_t count) {
    return static_cast<std::size_t>(detail::checked(stdchk_read(file_.get(), bytes, count)));
  }
  std::size_t pread(void* bytes, std::size_t count, std::uint64_t offset) {
    return static_cast<std::size_t>(
        detail::checked(stdchk_pread(file_.get(), bytes, count, offset)));
  }
  void truncate(std::uint64_t size) { detail::checked(stdchk_truncate(file_.get(), size)); }
  void sync() { detail::checked(stdchk_sync(file_.get())); }
  stdchk_attributes attributes() {
    stdchk_attributes out;
    detail::checked(stdchk_fstat(file_.get(), &out));
    return out;
  }
  /// Makes the bytes visible. The File has ended, even when this throws.
  void close() { detail::checked(stdchk_close(file_.release())); }
  void abort() { file_.reset(); }
  stdchk_file* get() const { return file_.get(); }

 private:
  std::unique_ptr<stdchk_file, detail::Deleter> file_;
};

/// An Entry is a name in a folder, with its attributes.
struct Entry {
  std::string name;
  stdchk_attributes attributes;
};

/// A Pool is a connection to a pool. It must outlive its files.
class Pool {
 public:
  Pool() : pool_(detail::checked(stdchk_connect(nullptr))) {}
  explicit Pool(const stdchk_options& options) : pool_(detail::checked(stdchk_connect(&options))) {}

  File open(const std::string& path, int flags, mode_t mode = 0644) {
    return File(detail::checked(stdchk_open(pool_.get(), path.c_str(), flags, mode)));
  }
  stdchk_attributes stat(const std::string& path) {
    stdchk_attributes out;
    detail::checked(stdchk_stat(pool_.get(), path.c_str(), &out));
    return out;
  }
  std::vector<Entry> list(const std::string& folder) {
    const std::unique_ptr<stdchk_dir, detail::Deleter> dir(
        detail::checked(stdchk_opendir(pool_.get(), folder.c_str())));
    std::vector<Entry> entries;
    while (const stdchk_entry* entry = stdchk_readdir(dir.get())) {
      entries.push_back({entry->name, entry->attributes});
    }
    return entries;
  }
  void mkdir(const std::string& path, mode_t mode = 0755) {
    detail::checked(stdchk_mkdir(pool_.get(), path.c_str(), mode));
  }
  void rmdir(const std::string& path) { detail::checked(stdchk_rmdir(pool_.get(), path.c_str())); }
  void unlink(const std::string& path) {
    detail::checked(stdchk_unlink(pool_.get(), path.c_str()));
  }
  void rename(const std::string& from, const std::string& to, unsigned flags = 0) {
    detail::checked(stdchk_rename(pool_.get(), from.c_str(), to.c_str(), flags));
  }
  /// The sets of a folder, the newest first.
  std::vector<stdchk_set> sets(const std::string& folder) {
    stdchk_set* list = nullptr;
    const auto count = detail::checked(stdchk_set_list(pool_.get(), folder.c_str(), &list));
    const std::unique_ptr<stdchk_set, void (*)(void*)> owner(list, stdchk_free);
    return {list, list + count};
  }
  stdchk_set latest(const std::string& folder, const char* application = nullptr) {
    stdchk_set out;
    detail::checked(stdchk_set_latest(pool_.get(), folder.c_str(), application, &out));
    return out;
  }
  /// Says that a directory is a whole set, where sets are directories.
  void commit_set(const std::string& directory) {
    detail::checked(stdchk_set_commit(pool_.get(), directory.c_str()));
  }
  stdchk_safety safe(const std::string& path) {
    stdchk_safety out;
    detail::checked(stdchk_safe(pool_.get(), path.c_str(), &out));
    return out;
  }
  void wait(const std::string& path, unsigned flags, std::chrono::milliseconds longest) {
    detail::checked(
        stdchk_wait(pool_.get(), path.c_str(), flags, static_cast<unsigned>(longest.count())));
  }
  stdchk_pool* get() const { return pool_.get(); }

 private:
  std::unique_ptr<stdchk_pool, detail::Deleter> pool_;
};

}  // namespace stdchk

#endif
