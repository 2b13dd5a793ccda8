#include "tests/sim/held_folder_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace stdchk::sim {
namespace {

using client::LeasedCalls;
using client::Lock;
using Turn = LeasedCalls::Turn;
using Kind = msg::NameChangeKind;

constexpr const char* kFolder = "held";
constexpr std::uint64_t kNames = 6;
constexpr std::uint64_t kChangesMax = 30;  ///< in a row
constexpr std::uint64_t kStays = 4;        ///< one of so many pauses changes the process

}  // namespace

// ---- operations -------------------------------------------------------------------------------

void HeldFolderScript::start_one(const Processes& processes) {
  if (!idle()) return;
  may_have_lost_ = may_have_lost_ || scene_.faults;
  EngineNode& other = *processes[prng_.below(processes.size())];
  const bool is_other = worker_ == nullptr || prng_.chance(1, kStays);
  EngineNode& node = is_other ? other : *worker_;
  if (node.node().stopped || !node.ready()) return;
  if (prng_.chance(1, 2)) worker_ = &node;
  begin(node, static_cast<int>(1 + prng_.below(&node == worker_ ? kChangesMax : 3)));
}

void HeldFolderScript::begin(EngineNode& node, int operations) {
  busy_ = &node;
  left_ = operations;
  next();
}

void HeldFolderScript::remove_all(EngineNode& node) {
  removes_all_ = true;
  drop_open();
  begin(node, 1000);
}

void HeldFolderScript::next() {
  under_way_ = {};
  if (busy_ == nullptr || left_-- <= 0 || !busy_->ready()) return end();
  if (!folder_) return make_folder();
  ++operations_;
  if (changer_.node != nullptr && (changer_.node != busy_ || has_lost())) must_list_ = true;
  if (must_list_) return scene_.cluster.now() < unsure_until_ ? end() : list();
  if (!removes_all_) return draw();
  if (possible_.back().empty()) return end();
  remove(possible_.back().begin()->first);
}

void HeldFolderScript::draw() {
  if (open_ != nullptr && opener_ == busy_ && prng_.chance(1, 3)) return finish_open();
  if (prng_.chance(1, 20)) return sync();
  if (prng_.chance(1, 10)) return list();
  const std::string name = fmt::format("n{}", prng_.below(kNames));
  const std::string other = fmt::format("n{}", prng_.below(kNames));
  if (is_open(name) || is_open(other)) return next();
  if (prng_.chance(1, 6)) return look_up(name);
  const Names& names = possible_.back();
  const auto found = names.find(name);
  if (found == names.end()) {
    if (prng_.chance(1, 8)) return add(name, FileType::kDirectory);
    return prng_.chance(1, 3) || open_ != nullptr ? add(name, FileType::kSymlink) : create(name);
  }
  const auto target = names.find(other);
  const bool may_move = found->second.type != FileType::kDirectory && name != other &&
                        (target == names.end() || target->second.type != FileType::kDirectory);
  return may_move && prng_.chance(1, 2) ? rename(name, other) : remove(name);
}

/// Repeats `step`. `here` gets its result. When the manager has to serve the call, sends `request`, and
/// `asked` gets the answer.
template <class T>
void HeldFolderScript::call(const char* what, Step<std::optional<T>> step,
                            std::function<void(const T&)> here, msg::Request request,
                            std::function<void(const rpc::Answer&)> asked) {
  EngineNode& node = *busy_;
  auto turn = std::make_shared<Turn>(node.leased());
  auto out = std::make_shared<std::optional<T>>();
  node.wait(
      what,
      [&node, turn, out, step = std::move(step)](Lock&) -> Status {
        STDCHK_ASSIGN(*out, step(*node.leased(), *turn));
        return {};
      },
      [this, &node, turn, out, what, here = std::move(here), request = std::move(request),
       asked = std::move(asked)](const Status& status) {
        if (!status) return failed(status.error(), what);
        if (out->has_value()) {
          return here(**out);
        }
        node.ask(what, request, [turn, asked](const rpc::Answer& answer) {
          if (answer.has_value()) turn->set_changed();
          asked(answer);
        });
      });
}

/// Makes a change by `step` or `request`.
template <class T>
void HeldFolderScript::make_change(const char* what, Change change, Step<std::optional<T>> step,
                                   msg::Request request) {
  under_way_ = change;
  call<T>(
      what, std::move(step),
      [this, change](const T&) {
        done(change, true);
        next();
      },
      std::move(request),
      [this, what, change](const rpc::Answer& answer) {
        ended(change, answer.has_value() ? Status() : fail(answer.error().error), what);
      });
}

void HeldFolderScript::make_folder() {
  EngineNode& node = *busy_;
  node.ask("make the held folder", msg::MakeDirectory{client_of(node), kRootFile, kFolder, 0755},
           [this, &node](const rpc::Answer&) {
             // After a lost answer, the look-up tells whether the folder exists.
             node.ask("look the held folder up", msg::Lookup{client_of(node), kRootFile, kFolder},
                      [this](const rpc::Answer& found) {
                        if (found.has_value()) {
                          folder_ = std::get<msg::Lookup::Reply>(*found).attributes.id;
                        }
                        next();
                      });
           });
}

void HeldFolderScript::add(const std::string& name, FileType type) {
  msg::NameChange change;
  change.parent = folder_;
  change.name = name;
  const bool is_folder = type == FileType::kDirectory;
  change.kind = is_folder ? Kind::kAddDirectory : Kind::kAddSymlink;
  if (!is_folder) change.target = "target";
  const msg::Request request =
      is_folder ? msg::Request(msg::MakeDirectory{client_of(*busy_), folder_, name, 0755})
                : msg::Request(msg::MakeSymlink{client_of(*busy_), folder_, name, "target"});
  make_change<Attributes>(
      "make a held name",
      [name, type](Names& names) {
        return names.try_emplace(name, Entry{{}, type}).second;
      },
      [change](LeasedCalls& calls, Turn& turn) { return calls.make(turn, change); }, request);
}

void HeldFolderScript::remove(const std::string& name) {
  const bool is_folder = possible_.back().at(name).type == FileType::kDirectory;
  make_change<std::uint32_t>(
      "remove a held name", [name](Names& names) { return names.erase(name) != 0; },
      [this, name, is_folder](LeasedCalls& calls, Turn& turn) {
        return calls.remove(turn, folder_, name, is_folder);
      },
      msg::Remove{client_of(*busy_), folder_, name, is_folder});
}

void HeldFolderScript::rename(const std::string& from, const std::string& to) {
  const msg::Rename request{client_of(*busy_), folder_, from, folder_, to, false, false};
  make_change<std::uint32_t>(
      "rename a held name",
      [from, to](Names& names) {
        const auto found = names.find(from);
        if (found == names.end()) return false;
        names[to] = found->second;
        names.erase(from);
        return true;
      },
      [request](LeasedCalls& calls, Turn& turn) { return calls.rename(turn, request); }, request);
}

/// Makes a file, which stays open and empty in a held folder. A session makes it elsewhere.
void HeldFolderScript::create(const std::string& name) {
  msg::OpenSession request;
  request.parent = folder_;
  request.name = name;
  request.mode = 0644;
  EngineNode& node = *busy_;
  auto turn = std::make_shared<Turn>(node.leased());
  auto made = std::make_shared<std::optional<LeasedCalls::Created>>();
  auto opening = std::make_shared<std::shared_ptr<client::Engine::Opening>>();
  node.wait(
      "create a held name",
      [this, &node, name, turn, made, opening, request](Lock&) -> Status {
        STDCHK_ASSIGN(*made, node.leased()->create(*turn, folder_, name, true, {}));
        if (!made->has_value()) *opening = node.engine().open_session(request);
        return {};
      },
      [this, &node, name, turn, made, opening](const Status& status) {
        if (!status) return failed(status.error(), "create a held name");
        if (*opening != nullptr) {
          turn->set_changed();
          return wait_for_session(name, *opening);
        }
        open_ = (*made)->made;
        opened_until_ = {};
        open_name_ = name;
        opener_ = &node;
        return prng_.chance(1, 4) ? next() : finish_open();
      });
}

/// Ends the open file: with its name in the pool, with a session, or without either.
void HeldFolderScript::finish_open() {
  const auto way = prng_.below(8);
  if (way == 0) {
    drop_open();
    return next();
  }
  EngineNode& node = *busy_;
  const std::string name = open_name_;
  const FileId file = open_->file;
  const Change change = [name, file](Names& names) {
    return names.try_emplace(name, Entry{file, FileType::kRegular}).second;
  };
  under_way_ = change;
  node.wait(
      "end a held file",
      [&node, open = open_, starts_session = way < 3](Lock&) -> Status {
        return starts_session ? node.leased()->start_session(*open) : node.leased()->store(*open);
      },
      [this, name, change](const Status& status) {
        if (!status) {
          drop_open();
          return failed(status.error(), "end a held file");
        }
        if (open_->opening != nullptr) return wait_for_session(name, open_->opening);
        drop_open();
        done(change, true);
        next();
      });
}

void HeldFolderScript::wait_for_session(const std::string& name,
                                        std::shared_ptr<client::Engine::Opening> opening) {
  // A late open makes no name: only its commit does.
  under_way_ = {};
  busy_->wait(
      "open a held file",
      [opening](Lock&) -> Status {
        if (!opening->status.has_value()) return fail(Code::kWouldBlock, "sim");
        return *opening->status;
      },
      [this, name, opening](const Status& status) {
        if (!status) {
          drop_open();
          return failed(status.error(), "open a held file");
        }
        commit(name, std::move(opening->session));
      });
}

void HeldFolderScript::commit(const std::string& name, client::SessionPtr session) {
  EngineNode& node = *busy_;
  FileId file;
  {
    const Lock lock(node.engine().shared().mutex);
    file = session->attributes().id;
  }
  // After the loss of a lease, the open may have found the file.
  const Change change = [name, file](Names& names) {
    const Entry made{file, FileType::kRegular};
    return are_equal(names.try_emplace(name, made).first->second, made);
  };
  under_way_ = change;
  const auto held = std::make_shared<client::SessionPtr>(std::move(session));
  node.wait_for(
      "commit a held file",
      [held](Lock&) -> Result<client::CompletionPtr> { return (*held)->start_commit(true); },
      [this, &node, held, change](const Status& status) {
        {
          const Lock lock(node.engine().shared().mutex);
          if (--(*held)->openers == 0 && !(*held)->ending()) (*held)->abort(Code::kCancelled);
          held->reset();
        }
        drop_open();
        if (status) opened_until_ = {};
        ended(change, status, "commit a held file");
      });
}

void HeldFolderScript::drop_open() {
  if (open_ == nullptr) return;
  const Lock lock(opener_->engine().shared().mutex);
  opener_->leased()->drop(*open_);
  if (open_->opening != nullptr) opened_until_ = scene_.cluster.now() + kSettle;
  if (open_->opening != nullptr && open_->opening->session != nullptr) {
    client::SessionPtr session = std::move(open_->opening->session);
    if (--session->openers == 0 && !session->ending()) session->abort(Code::kCancelled);
  }
  open_.reset();
  opener_ = nullptr;
}

void HeldFolderScript::look_up(const std::string& name) {
  const auto judge = [this, name](const std::optional<FileId>& file, bool here) {
    seen(
        [&](const Names& names) {
          const auto found = names.find(name);
          if (found == names.end() || !file) return found == names.end() && !file;
          return are_equal(found->second, {*file, found->second.type});
        },
        here, "a look-up");
    next();
  };
  call<LeasedCalls::Found>(
      "look a held name up",
      [this, name](LeasedCalls& calls, Turn& turn) { return calls.lookup(turn, folder_, name); },
      [judge](const LeasedCalls::Found& found) {
        judge(found.file ? std::optional(found.file) : std::nullopt, true);
      },
      msg::Lookup{client_of(*busy_), folder_, name},
      [this, judge](const rpc::Answer& answer) {
        if (!busy_->ready()) return next();  // an earlier manager may have answered
        if (answer.has_value()) {
          return judge(std::get<msg::Lookup::Reply>(*answer).attributes.id, false);
        }
        const Error& why = answer.error().error;
        return why.code == Code::kNotFound ? judge(std::nullopt, false)
                                           : failed(why, "look a held name up");
      });
}

void HeldFolderScript::list() {
  call<std::vector<msg::DirectoryEntry>>(
      "list the held folder",
      [this](LeasedCalls& calls, Turn& turn) { return calls.read_directory(turn, folder_); },
      [this](const std::vector<msg::DirectoryEntry>& entries) {
        listed(entries, true);
        next();
      },
      msg::ReadDirectory{client_of(*busy_), folder_, {}},
      [this](const rpc::Answer& answer) {
        if (!answer.has_value()) return failed(answer.error().error, "list the held folder");
        // An earlier manager may have answered.
        if (busy_->ready()) listed(std::get<msg::ReadDirectory::Reply>(*answer).entries, false);
        next();
      });
}

void HeldFolderScript::sync() {
  EngineNode& node = *busy_;
  auto point = std::make_shared<std::optional<LeasedCalls::SyncPoint>>();
  node.wait(
      "sync the held folder",
      [&node, point](Lock&) -> Status {
        if (!*point) *point = node.leased()->begin_sync();
        return node.leased()->end_sync(**point);
      },
      [this](const Status& status) {
        if (!status) return failed(status.error(), "sync the held folder");
        if (changer_.node == busy_ && !has_lost()) possible_ = {possible_.back()};
        next();
      });
}

void HeldFolderScript::killed(const EngineNode& node) {
  if (opener_ == &node) drop_open();
  if (busy_ == &node) {
    if (under_way_) maybe_done(under_way_);
    under_way_ = {};
    end();
  }
  if (worker_ == &node) worker_ = nullptr;
  if (doomed_.node == &node) doomed_ = {};
  if (changer_.node != &node) return;
  changer_ = {};
  must_list_ = true;
}

// ---- the model --------------------------------------------------------------------------------

/// Notes an executed change. A holder that has lost its lease meanwhile changed other names than those
/// that its application knew.
void HeldFolderScript::done(const Change& change, bool here) {
  check_told();
  scene_.note(here ? 11 : 12);
  if (here) ++changes_here_;
  const bool is_lost = changer_.node != nullptr && has_lost();
  std::vector<Names> after;
  for (const Names& before : possible_) {
    Names names = before;
    if ((is_lost || &before == &possible_.back()) && change(names)) {
      after.push_back(std::move(names));
    }
  }
  if (after.empty()) {
    scene_.complain("held: a change succeeds that the names do not allow");
    after.push_back(possible_.back());
  }
  if (here) after.insert(after.begin(), possible_.begin(), possible_.end());
  possible_ = std::move(after);
  is_mixed_ = here && is_lost;
  must_list_ = must_list_ || is_lost;
  changer_ = here && !is_lost ? Holder{busy_, losses(*busy_)} : Holder{};
}

/// Judges the manager's answer to a change, and goes on.
void HeldFolderScript::ended(const Change& change, const Status& status, const char* what) {
  if (status) {
    done(change, false);
  } else if (is_maybe(status.error().code)) {
    maybe_done(change);
  } else {
    return failed(status.error(), what);
  }
  next();
}

/// The change may be executed, now or until the pool has settled.
void HeldFolderScript::maybe_done(const Change& change) {
  scene_.note(13);
  std::vector<Names> after;
  for (const Names& before : possible_) {
    after.push_back(before);
    if (change(after.back())) continue;
    after.pop_back();
  }
  possible_.insert(possible_.begin(), after.begin(), after.end());
  must_list_ = may_have_lost_ = true;
  unsure_until_ = scene_.cluster.now() + kSettle;
}

void HeldFolderScript::failed(const Error& why, const char* what) {
  scene_.note(14);
  ++scene_.tally.errors;
  if (!may_have_lost_) {
    scene_.complain(fmt::format("held: to {} failed without faults: {}", what, describe(why)));
  }
  must_list_ = true;
  next();
}

/// A process whose changes are lost hears of it before any other answer.
void HeldFolderScript::check_told() {
  if (doomed_.node != busy_) return;
  if (losses(*busy_) == doomed_.losses) {
    scene_.complain("held: a process that has lost changes goes on, and was not told");
  }
  doomed_ = {};
}

bool HeldFolderScript::has_lost() const { return losses(*changer_.node) != changer_.losses; }

/// Judges what a process saw. Names of an earlier moment are there only after a loss.
void HeldFolderScript::seen(const std::function<bool(const Names&)>& fits, bool here,
                            const char* what) {
  check_told();
  if (fits(possible_.back())) return;
  const bool is_possible = std::ranges::any_of(possible_, fits);
  // The process that has made the changes knows of a loss.
  const bool may_lose = may_have_lost_ && (changer_.node != busy_ || has_lost());
  if (!is_possible || !may_lose) {
    for (const Names& names : possible_) {
      std::string text;
      for (const auto& [name, entry] : names) text += fmt::format(" {}:{}", name, entry.file.value);
      scene_.complain(fmt::format("held: possible:{}", text));
    }
    scene_.complain(
        fmt::format("held: {} of {} shows {}", what, busy_->node().name,
                    is_possible ? "names of an earlier moment" : "names that never were"));
  }
  must_list_ = true;
  if (!here && changer_.node != nullptr && changer_.node != busy_ && !has_lost()) {
    doomed_ = changer_;
  }
}

void HeldFolderScript::listed(const std::vector<msg::DirectoryEntry>& entries, bool here) {
  Names names;
  for (const msg::DirectoryEntry& entry : entries) {
    if (open_ != nullptr && entry.name == open_name_) continue;
    names[entry.name] = {entry.attributes.id, entry.attributes.type};
  }
  std::string text = here ? "a listing of the holder" : "a listing";
  for (const auto& [name, entry] : names) text += fmt::format(" {}:{}", name, entry.file.value);
  seen([&](const Names& one) { return are_equal(one, names); }, here, text.c_str());
  must_list_ = false;
  // The pool may lack the holder's last changes.
  const bool is_unsent = is_mixed_ || (changer_.node == busy_ && !has_lost());
  if (!here || !is_unsent) possible_.clear();
  possible_.push_back(names);
  if (here && is_unsent) return;
  is_mixed_ = false;
  changer_ = {};
  may_have_lost_ = scene_.faults;
}

bool HeldFolderScript::are_equal(const Entry& a, const Entry& b) {
  return a.type == b.type && (!a.file || !b.file || a.file == b.file);
}

bool HeldFolderScript::are_equal(Names a, Names b) const {
  for (Names* names : {&a, &b}) {
    std::erase_if(*names, [this](const auto& one) { return is_open(one.first); });
  }
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && are_equal(x.second, y.second);
  });
}

std::uint64_t HeldFolderScript::losses(EngineNode& node) {
  const Lock lock(node.engine().shared().mutex);
  return node.leased()->losses();
}

ClientId HeldFolderScript::client_of(EngineNode& node) {
  const Lock lock(node.engine().shared().mutex);
  return node.engine().client();
}

}  // namespace stdchk::sim
