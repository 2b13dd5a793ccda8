#include "tests/sim/folder_script.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "tests/sim/engine_scripts.h"
#include "tests/sim/plain_operations.h"

namespace stdchk::sim {

namespace {

namespace files = std::filesystem;

constexpr std::uint64_t kNames = 4;
constexpr std::uint32_t kModeKept = 0700;  // the owner can always enter the directory

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Whether `path` is `above` or lies below it.
bool is_within(const std::string& path, const std::string& above) {
  if (above.empty() || path == above) return true;
  return path.size() > above.size() && path.compare(0, above.size(), above) == 0 &&
         path[above.size()] == '/';
}

bool is_directory(const Folder& folder, const std::string& path) {
  const auto found = folder.find(path);
  return found != folder.end() && found->second.type == FileType::kDirectory;
}

bool has_children(const Folder& folder, const std::string& path) {
  return std::ranges::any_of(folder, [&](const auto& each) {
    return each.first != path && !each.first.empty() && is_within(each.first, path);
  });
}

/// Removes `path` and its descendants from `folder`. Answers them with paths relative to `path`.
Folder cut(Folder& folder, const std::string& path) {
  Folder out;
  for (auto each = folder.begin(); each != folder.end();) {
    if (is_within(each->first, path)) {
      out.emplace(each->first.substr(path.size()), std::move(each->second));
      each = folder.erase(each);
    } else {
      ++each;
    }
  }
  return out;
}

void paste(Folder& folder, const std::string& path, Folder what) {
  for (auto& [below, entry] : what) folder.emplace(path + below, std::move(entry));
}

Result<Folder> add(Folder folder, const std::string& path, FolderEntry entry) {
  if (!path.empty() && !is_directory(folder, parent_of(path))) {
    return fail(Code::kNotDirectory, "sim.folder");
  }
  if (!folder.emplace(path, std::move(entry)).second) return fail(Code::kExists, "sim.folder");
  return folder;
}

/// Gives the file at `from` the name `to`. `file` identifies the file from now on, unless it has
/// several names already.
Result<Folder> linked(Folder folder, const std::string& from, const std::string& to,
                      std::uint64_t file) {
  FolderEntry& entry = folder.at(from);
  if (entry.type == FileType::kDirectory) return fail(Code::kSystem, "sim.folder");
  if (folder.count(to) == 0 && is_directory(folder, parent_of(to)) && entry.file == 0) {
    entry.file = file;
  }
  return add(folder, to, FolderEntry(entry));
}

/// Calls change(entry) for each name of the file at `path`.
template <class Change>
void for_each_name(Folder& folder, const std::string& path, Change change) {
  const std::uint64_t file = folder.at(path).file;
  if (file == 0) return change(folder.at(path));
  for (auto& [at, entry] : folder) {
    if (entry.file == file) change(entry);
  }
}

std::uint32_t names_of(const Folder& folder, const std::string& path) {
  const std::uint64_t file = folder.at(path).file;
  if (file == 0) return 1;
  return static_cast<std::uint32_t>(
      std::ranges::count_if(folder, [&](const auto& each) { return each.second.file == file; }));
}

/// Renumbers files, so that folders are equal when the same names belong to the same files.
void number_files(Folder& folder) {
  std::map<std::uint64_t, std::uint64_t> counts;
  for (const auto& [path, entry] : folder) ++counts[entry.file];
  std::map<std::uint64_t, std::uint64_t> numbers;
  for (auto& [path, entry] : folder) {
    if (entry.file == 0) continue;
    entry.file =
        counts[entry.file] < 2 ? 0 : numbers.emplace(entry.file, numbers.size() + 1).first->second;
  }
}

Result<Folder> removed(Folder folder, const std::string& path, bool directory) {
  if (!is_directory(folder, parent_of(path))) return fail(Code::kNotDirectory, "sim.folder");
  if (folder.count(path) == 0) return fail(Code::kNotFound, "sim.folder");
  if (directory && !is_directory(folder, path)) return fail(Code::kNotDirectory, "sim.folder");
  if (directory && has_children(folder, path)) return fail(Code::kNotEmpty, "sim.folder");
  if (!directory && is_directory(folder, path)) return fail(Code::kIsDirectory, "sim.folder");
  folder.erase(path);
  return folder;
}

Result<Folder> renamed(Folder folder, const std::string& from, const std::string& to,
                       bool no_replace, bool exchange) {
  if (!is_directory(folder, parent_of(from))) return fail(Code::kNotDirectory, "sim.folder");
  if (folder.count(from) == 0) return fail(Code::kNotFound, "sim.folder");
  if (!is_directory(folder, parent_of(to))) return fail(Code::kNotDirectory, "sim.folder");
  const bool moves_directory = is_directory(folder, from);
  const bool over_directory = is_directory(folder, to);
  const bool over = folder.count(to) > 0;
  if (moves_directory && is_within(parent_of(to), from)) {
    return fail(Code::kCrossesDirectory, "sim.folder");
  }
  if (exchange) {
    if (!over) return fail(Code::kNotFound, "sim.folder");
    if (over_directory && is_within(parent_of(from), to)) {
      return fail(Code::kCrossesDirectory, "sim.folder");
    }
    if (from == to) return folder;
    Folder first = cut(folder, from);
    Folder second = cut(folder, to);
    paste(folder, to, std::move(first));
    paste(folder, from, std::move(second));
    return folder;
  }
  if (over && no_replace) return fail(Code::kExists, "sim.folder");
  if (from == to) return folder;
  if (over && folder.at(from).file != 0 && folder.at(from).file == folder.at(to).file) {
    return folder;
  }
  if (over && over_directory && !moves_directory) return fail(Code::kIsDirectory, "sim.folder");
  if (over && over_directory && has_children(folder, to)) {
    return fail(Code::kNotEmpty, "sim.folder");
  }
  if (over && !over_directory && moves_directory) return fail(Code::kNotDirectory, "sim.folder");
  folder.erase(to);
  paste(folder, to, cut(folder, from));
  return folder;
}

Result<Folder> with_attribute(Folder folder, const std::string& path,
                              const msg::SetXattr& request) {
  const auto& xattrs = folder.at(path).xattrs;
  const bool exists = xattrs.count(request.name) > 0;
  const bool must_exist = request.remove || request.mode == msg::XattrMode::kReplace;
  if (!exists && must_exist) return fail(Code::kNoAttribute, "sim.folder");
  if (exists && !request.remove && request.mode == msg::XattrMode::kCreate) {
    return fail(Code::kExists, "sim.folder");
  }
  for_each_name(folder, path, [&](FolderEntry& entry) {
    if (request.remove) {
      entry.xattrs.erase(request.name);
    } else {
      entry.xattrs[request.name] = request.value;
    }
  });
  return folder;
}

/// Reads a directory into a Folder, as far as a drain directory records it.
Folder load_folder(const files::path& path) {
  Folder out;
  const auto add_one = [&](const files::path& at) {
    struct stat info {};
    if (::lstat(at.c_str(), &info) != 0) return;
    FolderEntry entry;
    if (S_ISLNK(info.st_mode)) {
      entry.type = FileType::kSymlink;
      entry.target = files::read_symlink(at).string();
    } else {
      if (S_ISFIFO(info.st_mode)) entry.type = FileType::kFifo;
      entry.mode = info.st_mode & 07777;
    }
    if (!S_ISDIR(info.st_mode)) entry.file = info.st_ino;
    out[at == path ? std::string() : at.lexically_relative(path).string()] = entry;
  };
  if (!files::exists(path)) return out;
  add_one(path);
  for (const auto& each : files::recursive_directory_iterator(path)) add_one(each.path());
  number_files(out);
  return out;
}

}  // namespace

FolderScript::FolderScript(Cluster& cluster, std::string name, std::uint64_t seed,
                           Complain complain, Note note)
    : cluster_(cluster),
      name_(std::move(name)),
      prng_(seed),
      complain_(std::move(complain)),
      note_(std::move(note)) {}

std::string FolderScript::pick_path() {
  std::string path = fmt::format("x{}", prng_.below(kNames));
  if (prng_.chance(1, 2)) path += fmt::format("/x{}", prng_.below(kNames));
  return path;
}

void FolderScript::start_one(PlainClient& client) {
  if (!idle() || settled_ > cluster_.now()) return;
  ++operations_;
  run_ = std::make_shared<Run>(Run{&client, {}, {}});
  if (possible_.contains(Folder{})) return make_directory({});
  const std::string path = pick_path();
  const std::string other = pick_path();
  const std::string anything = prng_.chance(1, 6) ? std::string() : path;
  switch (prng_.below(15)) {
    case 0:
    case 1:
      return make_directory(path);
    case 2:
      return make_symlink(path);
    case 3:
      return remove(path);
    case 4:
    case 5:
    case 6:
      return rename(path, other);
    case 7:
      return set_mode(anything);
    case 8:
      return set_attribute(anything);
    case 9:
      return set_policy(anything);
    case 10:
      return make_fifo(path);
    case 11:
    case 12:
      return make_hard_link(path, other);
    default:
      return read(anything);
  }
}

void FolderScript::client_died(const PlainClient& client) {
  if (idle() || run_->client != &client) return;
  settle(tl::make_unexpected(rpc::Failure{{Code::kPeerLost, 0, "sim"}, {}}));
}

// ---- changes ------------------------------------------------------------------------------------

void FolderScript::make_directory(const std::string& path) {
  run_->what = "mkdir " + path;
  msg::MakeDirectory request;
  request.name = path.empty() ? name_ : name_of(path);
  request.mode = kModeKept | static_cast<std::uint32_t>(prng_.below(64));
  const FolderEntry entry{FileType::kDirectory, request.mode, {}, {}, {}, 0};
  const Effect effect = [path, entry](const Folder& folder) { return add(folder, path, entry); };
  if (path.empty()) {
    request.parent = kRootFile;
    return change(std::move(request), effect);
  }
  resolve(parent_of(path), [this, request, effect](FileId parent) mutable {
    request.parent = parent;
    change(std::move(request), effect);
  });
}

void FolderScript::make_symlink(const std::string& path) {
  run_->what = "symlink " + path;
  msg::MakeSymlink request;
  request.name = name_of(path);
  request.target = fmt::format("t{}", prng_.below(kNames));
  const FolderEntry entry{FileType::kSymlink, 0777, request.target, {}, {}, 0};
  resolve(parent_of(path), [this, request, path, entry](FileId parent) mutable {
    request.parent = parent;
    change(std::move(request),
           [path, entry](const Folder& folder) { return add(folder, path, entry); });
  });
}

void FolderScript::make_fifo(const std::string& path) {
  run_->what = "mkfifo " + path;
  msg::MakeNode request;
  request.name = name_of(path);
  request.type = FileType::kFifo;
  request.mode = kModeKept | static_cast<std::uint32_t>(prng_.below(64));
  const FolderEntry entry{FileType::kFifo, request.mode, {}, {}, {}, 0};
  resolve(parent_of(path), [this, request, path, entry](FileId parent) mutable {
    request.parent = parent;
    change(std::move(request),
           [path, entry](const Folder& folder) { return add(folder, path, entry); });
  });
}

void FolderScript::make_hard_link(const std::string& from, const std::string& to) {
  run_->what = fmt::format("link {} to {}", from, to);
  msg::MakeLink request;
  request.name = name_of(to);
  resolve(from, [this, request, from, to](FileId file) mutable {
    request.file = file;
    resolve(parent_of(to), [this, request, from, to](FileId parent) mutable {
      request.parent = parent;
      change(std::move(request), [from, to, number = operations_](const Folder& folder) {
        return linked(folder, from, to, number);
      });
    });
  });
}

void FolderScript::remove(const std::string& path) {
  run_->what = "remove " + path;
  msg::Remove request;
  request.name = name_of(path);
  request.directory = prng_.chance(1, 2);
  resolve(parent_of(path), [this, request, path](FileId parent) mutable {
    request.parent = parent;
    change(request, [path, directory = request.directory](const Folder& folder) {
      return removed(folder, path, directory);
    });
  });
}

void FolderScript::rename(const std::string& from, const std::string& to) {
  run_->what = fmt::format("rename {} to {}", from, to);
  msg::Rename request;
  request.from_name = name_of(from);
  request.to_name = name_of(to);
  request.exchange = prng_.chance(1, 3);
  request.no_replace = !request.exchange && prng_.chance(1, 3);
  resolve(parent_of(from), [this, request, from, to](FileId from_parent) mutable {
    request.from_parent = from_parent;
    resolve(parent_of(to), [this, request, from, to](FileId to_parent) mutable {
      request.to_parent = to_parent;
      change(request,
             [from, to, no_replace = request.no_replace, exchange = request.exchange](
                 const Folder& folder) { return renamed(folder, from, to, no_replace, exchange); });
    });
  });
}

void FolderScript::set_mode(const std::string& path) {
  run_->what = "chmod " + path;
  msg::SetAttributes request;
  request.mask = static_cast<std::uint32_t>(msg::SetMask::kMode) |
                 static_cast<std::uint32_t>(msg::SetMask::kMtime);
  request.mode = kModeKept | static_cast<std::uint32_t>(prng_.below(64));
  request.mtime_ns = static_cast<std::int64_t>(prng_.below(1000000));
  resolve(path, [this, request, path](FileId id) mutable {
    request.file = id;
    change(request, [path, mode = request.mode](Folder folder) -> Result<Folder> {
      for_each_name(folder, path, [mode](FolderEntry& entry) { entry.mode = mode; });
      return folder;
    });
  });
}

void FolderScript::set_attribute(const std::string& path) {
  run_->what = "setxattr " + path;
  msg::SetXattr request;
  request.name = fmt::format("user.a{}", prng_.below(2));
  request.remove = prng_.chance(1, 4);
  request.mode = static_cast<msg::XattrMode>(request.remove ? 0 : prng_.below(3));
  request.value = request.remove ? std::string() : fmt::format("v{}", prng_.below(100));
  resolve(path, [this, request, path](FileId id) mutable {
    request.file = id;
    change(request,
           [path, request](const Folder& folder) { return with_attribute(folder, path, request); });
  });
}

void FolderScript::set_policy(const std::string& path) {
  run_->what = "set policy " + path;
  const std::uint64_t keep = prng_.chance(1, 3) ? kPolicyInherit : prng_.below(5);
  resolve(path, [this, path, keep](FileId id) {
    msg::SetPolicy request;
    request.directory = id;
    request.changes.settings = {{PolicyKey::kKeep, keep}};
    change(request, [path, keep](Folder folder) -> Result<Folder> {
      FolderEntry& entry = folder.at(path);
      if (entry.type != FileType::kDirectory) return fail(Code::kNotDirectory, "sim.folder");
      entry.keep = keep == kPolicyInherit ? std::optional<std::uint64_t>() : keep;
      return folder;
    });
  });
}

// ---- reading ------------------------------------------------------------------------------------

void FolderScript::read(const std::string& path) {
  run_->what = "read " + path;
  resolve(path, [this, path](FileId id) {
    ask(msg::GetAttributes{run_->client->id(), id}, [this, path, id](const rpc::Answer& answer) {
      const Attributes seen = std::get<msg::GetAttributes::Reply>(*answer).attributes;
      observe("attributes", [&](const Folder& folder) {
        const FolderEntry& entry = folder.at(path);
        return entry.type == seen.type && entry.mode == seen.mode &&
               (entry.type == FileType::kDirectory || names_of(folder, path) == seen.link_count);
      });
      read_more(path, id, seen.type);
    });
  });
}

void FolderScript::read_more(const std::string& path, FileId id, FileType type) {
  ask(msg::GetXattrs{id}, [this, path, id, type](const rpc::Answer& answer) {
    const auto& got = std::get<msg::GetXattrs::Reply>(*answer).attributes;
    const std::map<std::string, std::string> seen(got.begin(), got.end());
    observe("extended attributes",
            [&](const Folder& folder) { return folder.at(path).xattrs == seen; });
    if (type == FileType::kDirectory) {
      return ask(msg::GetPolicy{id}, [this, path, id](const rpc::Answer& policy) {
        const auto keep = std::get<msg::GetPolicy::Reply>(*policy).own.find(PolicyKey::kKeep);
        observe("policy", [&](const Folder& folder) { return folder.at(path).keep == keep; });
        list(path, id, {}, {});
      });
    }
    if (type == FileType::kFifo) return end(1);
    ask(msg::ReadSymlink{id}, [this, path](const rpc::Answer& link) {
      const std::string& target = std::get<msg::ReadSymlink::Reply>(*link).target;
      observe("link", [&](const Folder& folder) { return folder.at(path).target == target; });
      end(1);
    });
  });
}

void FolderScript::list(const std::string& path, FileId id, const std::string& after,
                        std::set<std::string> seen) {
  ask(msg::ReadDirectory{run_->client->id(), id, after},
      [this, path, id, seen = std::move(seen)](const rpc::Answer& answer) mutable {
        const auto& reply = std::get<msg::ReadDirectory::Reply>(*answer);
        for (const auto& entry : reply.entries) seen.insert(entry.name);
        if (reply.more) return list(path, id, reply.entries.back().name, std::move(seen));
        observe("names", [&](const Folder& folder) {
          std::set<std::string> names;
          for (const auto& [each, entry] : folder) {
            if (!each.empty() && parent_of(each) == path) names.insert(name_of(each));
          }
          return names == seen;
        });
        end(2);
      });
}

void FolderScript::check_drained(const std::string& drain_directory) const {
  const Folder there = load_folder(files::path(drain_directory) / name_);
  const auto as_drained = [](Folder folder) {
    for (auto& [path, entry] : folder) {
      entry.xattrs.clear();
      entry.keep.reset();
      if (entry.type == FileType::kSymlink) entry.mode = 0;
    }
    number_files(folder);
    return folder;
  };
  if (std::ranges::any_of(possible_,
                          [&](const Folder& each) { return as_drained(each) == there; })) {
    return;
  }
  complain_(fmt::format("M6: {} has {} entries in the drain directory, which it never had", name_,
                        there.size()));
}

// ---- requests -----------------------------------------------------------------------------------

void FolderScript::resolve(const std::string& path, Then then) {
  look_up(path, std::string::npos, kRootFile, std::move(then));
}

/// Looks up the name that begins at `begin` in `path`; npos means the folder itself.
void FolderScript::look_up(const std::string& path, std::size_t begin, FileId parent, Then then) {
  const bool top = begin == std::string::npos;
  const std::size_t end_of_name = top ? 0 : std::min(path.find('/', begin), path.size());
  const std::string at = path.substr(0, end_of_name);
  const msg::Lookup request{run_->client->id(), parent, top ? name_ : name_of(at)};
  run_->client->ask(
      request, [this, run = run_, path, at, then = std::move(then)](const rpc::Answer& answer) {
        if (run != run_) return;
        if (!answer.has_value()) {
          const Code why = answer.error().error.code;
          if (why == Code::kNotFound || why == Code::kNotDirectory) {
            observe("look-up", [&](const Folder& folder) { return folder.count(at) == 0; });
          }
          return end(3);
        }
        if (!observe("look-up", [&](const Folder& folder) { return folder.count(at) > 0; })) {
          return end(8);
        }
        const FileId found = std::get<msg::Lookup::Reply>(*answer).attributes.id;
        if (at.size() == path.size()) return then(found);
        look_up(path, at.empty() ? 0 : at.size() + 1, found, then);
      });
}

void FolderScript::ask(msg::Request request, std::function<void(rpc::Answer)> done) {
  run_->client->ask(std::move(request),
                    [this, run = run_, done = std::move(done)](rpc::Answer answer) {
                      if (run != run_) return;
                      if (answer.has_value()) return done(std::move(answer));
                      if (!ending_of(answer).maybe) {
                        complain_(fmt::format("names: {} of {} fails: {}", run->what, name_,
                                              describe(answer.error().error)));
                      }
                      end(4);
                    });
}

void FolderScript::change(msg::Request request, Effect effect) {
  std::visit(
      [&](auto& one) {
        if constexpr (requires { one.client; }) one.client = run_->client->id();
      },
      request);
  run_->effect = std::move(effect);
  run_->client->ask(std::move(request), [this, run = run_](const rpc::Answer& answer) {
    if (run == run_) settle(answer);
  });
}

void FolderScript::settle(const rpc::Answer& answer) {
  if (!run_->effect) return end(5);
  const Ending ending = ending_of(answer);
  std::set<Folder> next;
  if (ending.maybe) {
    next = possible_;
    settled_ = cluster_.now() + kSettle;
  }
  for (const Folder& each : possible_) {
    const Result<Folder> after = run_->effect(each);
    if (ending.maybe || answer.has_value()) {
      if (after.has_value()) next.insert(*after);
    } else if (!after.has_value() && after.error().code == answer.error().error.code) {
      next.insert(each);
    }
  }
  if (next.empty()) {
    complain_(fmt::format("names: {} of {}: {} is not what may be", run_->what, name_,
                          answer.has_value() ? "done" : describe(answer.error().error)));
  } else {
    possible_ = std::move(next);
  }
  end(answer.has_value() ? 6 : 7);
}

bool FolderScript::observe(const std::string& what, const Seen& seen) {
  std::set<Folder> next;
  for (const Folder& each : possible_) {
    if (seen(each)) next.insert(each);
  }
  if (next.empty()) {
    complain_(
        fmt::format("names: {}: {} of {} shows what was never there", run_->what, what, name_));
    return false;
  }
  possible_ = std::move(next);
  return true;
}

void FolderScript::end(std::uint64_t outcome) {
  run_.reset();
  note_(outcome * 131 + possible_.size());
}

}  // namespace stdchk::sim
