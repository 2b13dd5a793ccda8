#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "fork/library/daemon_call.h"
#include "fork/library/frozen_copy.h"
#include "fork/library/guest_calls.h"
#include "fork/library/huge_pages.h"
#include "fork/library/stdchk_fork.h"

using stdchk::fork::FrozenCopy;
using stdchk::fork::set_error;
using stdchk::fork::local::Kind;
using stdchk::fork::local::Record;

namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 20;
constexpr std::size_t kFrozenBytes = (sizeof(FrozenCopy) + 4095) / 4096 * 4096;

int own_id = 0;
/// The call that is under way. In static memory, because a clone comes back by longjmp(3).
FrozenCopy* under_way = nullptr;
char* room = nullptr;

static_assert(SF_VALUE_BYTES_MAX == stdchk::fork::local::kValueBytesMax);
static_assert(SF_HIERARCHICAL == stdchk::fork::local::kHierarchical);
static_assert(SF_OUTLIVE == stdchk::fork::local::kOutlives);

void leave_room(FrozenCopy* frozen) {
  const sigset_t mask = frozen->mask;
  under_way = nullptr;
  ::munmap(room, kFrozenBytes + kStackBytes);
  room = nullptr;
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace

extern "C" {

int sf_request_ticket(uint32_t n, int options, sf_ticket* ticket) {
  if (stdchk::fork::guest::is_guest()) return stdchk::fork::guest::request_ticket(n, ticket);
  Record record;
  record.kind = Kind::kTicket;
  record.count = n;
  record.options = static_cast<uint32_t>(options);
  if (const int result = stdchk::fork::call_daemon(record); result != 0) return result;
  ticket->number = record.ticket;
  ticket->count = record.count;
  return 0;
}

int sf_prepare(void) {
  const int error = stdchk::fork::merge_into_huge_pages();
  if (error != 0)
    set_error("The kernel cannot merge memory into huge pages (madvise(2), MADV_COLLAPSE).");
  return -error;
}

// Without the fortified longjmp(3), which refuses to change from the copy's stack to the program's.
int sf_clone(const sf_ticket* ticket) {
  if (stdchk::fork::guest::is_guest()) {
    const int result = stdchk::fork::guest::clone(ticket);
    if (result > 0) own_id = result;
    return result;
  }
  if (under_way != nullptr) {
    set_error("Another thread is in sf_clone.");
    return -EBUSY;
  }
  Record record;
  record.kind = Kind::kClone;
  record.ticket = ticket->number;
  if (const int result = stdchk::fork::call_daemon(record); result != 0) return result;
  void* mapped = ::mmap(nullptr, kFrozenBytes + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    set_error("There is no memory for the stack of the frozen copy.");
    return -ENOMEM;
  }
  room = static_cast<char*>(mapped);
  under_way = new (room) FrozenCopy();
  under_way->ticket = ticket->number;
  under_way->room_begin = reinterpret_cast<std::uint64_t>(room);
  under_way->room_end = under_way->room_begin + kFrozenBytes + kStackBytes;
  std::strcpy(under_way->daemon_path, stdchk::fork::daemon_path());
  std::memcpy(under_way->token, record.token, sizeof(record.token));
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &under_way->mask);
  under_way->files.remember();
  if (_setjmp(under_way->back) != 0) {
    own_id = under_way->id;
    leave_room(under_way);
    return own_id;
  }
  const int error = stdchk::fork::freeze(under_way, room + kFrozenBytes, kStackBytes);
  leave_room(under_way);
  if (error == 0) return 0;
  set_error("The process cannot be forked: is there memory for a copy of it?");
  return -error;
}

void sf_exit_with(int status, const void* value, size_t bytes) {
  if (own_id != 0 && stdchk::fork::guest::is_guest()) {
    stdchk::fork::guest::exit_with(status, value, bytes);
  } else if (own_id != 0) {
    Record record;
    record.kind = Kind::kExit;
    record.status = status;
    record.id = static_cast<uint32_t>(own_id);
    record.value_bytes = static_cast<uint32_t>(std::min<size_t>(bytes, SF_VALUE_BYTES_MAX));
    if (record.value_bytes > 0) std::memcpy(record.value, value, record.value_bytes);
    stdchk::fork::call_daemon(record);
  }
  ::_exit(status);
}

void sf_exit(int status) { sf_exit_with(status, nullptr, 0); }

int sf_join_results(const sf_ticket* ticket, sf_result* results) {
  if (stdchk::fork::guest::is_guest()) return stdchk::fork::guest::join(ticket, results);
  const int fd = stdchk::fork::connect_daemon();
  if (fd < 0) return fd;
  Record record;
  record.kind = Kind::kJoin;
  record.ticket = ticket->number;
  int result = stdchk::fork::send_record(fd, record);
  int bad = 0;
  while (result == 0) {
    result = stdchk::fork::receive_record(fd, record);
    if (result == -EPIPE) set_error("stdchk-forkd has ended, and with it all clones.");
    if (result != 0 || record.kind != Kind::kResult) break;
    if (record.end != SF_EXITED || record.status != 0) bad++;
    if (results == nullptr || record.id == 0 || record.id > ticket->count) continue;
    sf_result& to = results[record.id - 1];
    to.id = record.id;
    to.end = static_cast<sf_end>(record.end);
    to.status = record.status;
    to.value_bytes = record.value_bytes;
    std::memcpy(to.value, record.value, record.value_bytes);
  }
  ::close(fd);
  if (result != 0) return result;
  if (record.error != 0) {
    char text[SF_VALUE_BYTES_MAX + 1] = {};
    std::memcpy(text, record.value, record.value_bytes);
    set_error(text);
    return -record.error;
  }
  return bad;
}

int sf_join(const sf_ticket* ticket) { return sf_join_results(ticket, nullptr); }

int sf_kill_one(const sf_ticket* ticket, uint32_t id) {
  if (stdchk::fork::guest::is_guest()) {
    set_error("In a virtual machine only sf_kill ends clones, all of a ticket.");
    return -ENOSYS;
  }
  Record record;
  record.kind = Kind::kKill;
  record.ticket = ticket->number;
  record.id = id;
  return stdchk::fork::call_daemon(record);
}

int sf_kill(const sf_ticket* ticket) {
  if (stdchk::fork::guest::is_guest()) return stdchk::fork::guest::kill(ticket);
  return sf_kill_one(ticket, 0);
}

int sf_id(void) { return own_id; }

int sf_identify(void) {
  if (!stdchk::fork::guest::is_guest()) return own_id;
  const int result = stdchk::fork::guest::identify();
  if (result >= 0) own_id = result;
  return result;
}

const char* sf_error(void) { return stdchk::fork::last_error(); }

}  // extern "C"
