#include "metrics/endpoint.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <microhttpd.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "metrics/listen_address.h"

namespace stdchk::metrics {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kIdleSecondsMax = 5;
constexpr Duration kCheckInterval = 1s;  ///< period of the check for connections that take too long
constexpr int kBacklog = 128;
constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

Outcome<int> open_socket(const std::string& listen, const addrinfo& at) {
  const int fd = ::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (fd >= 0 && ::bind(fd, at.ai_addr, at.ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) {
    return fd;
  }
  const int why = errno;
  if (fd >= 0) ::close(fd);
  const char* remedy = "choose another address";
  if (why == EADDRINUSE) {
    remedy = "another process listens there; choose another port, or 0 for a free one";
  } else if (why == EADDRNOTAVAIL) {
    remedy = "this host has no such address; `ip address` lists those that it has";
  } else if (why == EACCES) {
    remedy = "choose a port from 1024 on, or 0 for a free one";
  }
  return problem(
      fmt::format("metrics cannot be had at {}: {}; {}", listen, std::strerror(why), remedy));
}

Outcome<int> open_socket(const std::string& listen) {
  const auto place = ListenAddress::parse(listen);
  if (!place) return problem(place.error());
  const std::string port = std::to_string(place->port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(place->host.c_str(), port.c_str(), &hints, &found);
  if (failed != 0) {
    return problem(fmt::format("metrics cannot be had at {}: {}; choose an address of this host",
                               listen, ::gai_strerror(failed)));
  }
  auto fd = open_socket(listen, *found);
  ::freeaddrinfo(found);
  return fd;
}

std::string address_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::getsockname(fd, any, &length) != 0 ||
      ::getnameinfo(any, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  return ListenAddress{host, static_cast<std::uint16_t>(std::atoi(port))}.text();
}

void log_of_library(void*, const char* format, va_list arguments) {
  char line[512];
  if (std::vsnprintf(line, sizeof(line), format, arguments) <= 0) return;
  std::string_view text(line);
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  log::write(log::Level::kDebug, text);
}

MHD_Result respond(MHD_Connection* connection, unsigned status, const std::string& text,
                   const char* type = "text/plain") {
  // The library copies the text and does not change it, although the pointer's type would allow
  // that.
  MHD_Response* const response = MHD_create_response_from_buffer(
      text.size(), const_cast<char*>(text.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED) {
    MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  }
  const MHD_Result queued = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return queued;
}

bool has_body(MHD_Connection* connection) {
  const auto header = [&](const char* name) {
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  };
  const char* const length = header(MHD_HTTP_HEADER_CONTENT_LENGTH);
  return header(MHD_HTTP_HEADER_TRANSFER_ENCODING) != nullptr ||
         (length != nullptr && std::string_view(length) != "0");
}

}  // namespace

struct Endpoint::Callbacks {
  static MHD_Result handle(void* endpoint, MHD_Connection* connection, const char* path,
                           const char* method, const char*, const char*, std::size_t*,
                           void** state) {
    auto* request = static_cast<Request*>(*state);
    const int done = static_cast<Endpoint*>(endpoint)->handle(connection, path, method, request);
    *state = request;
    return static_cast<MHD_Result>(done);
  }

  static void completed(void*, MHD_Connection*, void** state, MHD_RequestTerminationCode) {
    delete static_cast<Request*>(*state);
    *state = nullptr;
  }

  /// The library calls this when a connection starts and when it ends. The descriptor stays open in
  /// between, so end_overdue() may use it then.
  static void connection(void* endpoint, MHD_Connection* connection, void**,
                         MHD_ConnectionNotificationCode what) {
    auto& self = *static_cast<Endpoint*>(endpoint);
    const int fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    const MutexLock lock(self.connected_mutex_);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
      self.connected_.push_back({fd, self.clock_.now()});
    } else {
      self.connected_.remove_if([&](const Connected& each) { return each.fd == fd; });
    }
  }
};

Endpoint::Endpoint(Page page, Duration connection_time)
    : page_(std::move(page)), connection_time_(connection_time) {}

Outcome<std::unique_ptr<Endpoint>> Endpoint::start(const std::string& listen, Page page,
                                                   Duration connection_time) {
  const auto fd = open_socket(listen);
  if (!fd) return problem(fd.error());
  std::unique_ptr<Endpoint> endpoint(new Endpoint(std::move(page), connection_time));
  endpoint->address_ = address_of(*fd);
  if (!endpoint->run(*fd)) {
    ::close(*fd);
    return problem(fmt::format(
        "metrics cannot be had at {}: no thread or no memory is left for them", listen));
  }
  return endpoint;
}

bool Endpoint::run(int listening) {
  // The library's thread inherits the signal mask of the thread that starts it.
  start_without_signals([&] {
    daemon_ = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, nullptr,
        nullptr, &Callbacks::handle, this,                         //
        MHD_OPTION_EXTERNAL_LOGGER, &log_of_library, nullptr,      //
        MHD_OPTION_LISTEN_SOCKET, listening,                       //
        MHD_OPTION_CONNECTION_LIMIT, kConnectionsMax,              //
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestBytesMax,      //
        MHD_OPTION_CONNECTION_TIMEOUT, kIdleSecondsMax,            //
        MHD_OPTION_STRICT_FOR_CLIENT, 1,                           //
        MHD_OPTION_NOTIFY_COMPLETED, &Callbacks::completed, this,  //
        MHD_OPTION_NOTIFY_CONNECTION, &Callbacks::connection, this, MHD_OPTION_END);
  }).join();
  if (daemon_ == nullptr) return false;
  maker_ = start_without_signals([this] { make_pages(); });
  return true;
}

Endpoint::~Endpoint() {
  if (daemon_ == nullptr) return;
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    wake_.notify_one();
  }
  maker_.join();
  MHD_stop_daemon(daemon_);
}

/// libmicrohttpd calls this first with the head of a request, then repeatedly until the answer.
int Endpoint::handle(MHD_Connection* connection, const std::string& path, const std::string& method,
                     Request*& request) {
  if (request == nullptr) {
    if (path != "/metrics") {
      return respond(connection, MHD_HTTP_NOT_FOUND, "only /metrics is here\n");
    }
    if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
      return respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
    }
    if (has_body(connection)) {
      return respond(connection, MHD_HTTP_CONTENT_TOO_LARGE, "a request must have no body\n");
    }
    request = new Request{connection, false, nullptr};  // deleted by Callbacks::completed
    return MHD_YES;
  }
  const MutexLock lock(mutex_);
  if (!request->waits && !ending_) {
    request->waits = true;
    MHD_suspend_connection(connection);
    waiting_.push_back(request);
    wake_.notify_one();
    return MHD_YES;
  }
  const bool good = request->page != nullptr && request->page->has_value();
  if (good) return respond(connection, MHD_HTTP_OK, **request->page, kContentType);
  const std::string why =
      request->page == nullptr ? std::string("the daemon ends") : describe(request->page->error());
  return respond(connection, MHD_HTTP_SERVICE_UNAVAILABLE, why + "\n");
}

void Endpoint::make_pages() {
  MutexLock lock(mutex_);
  for (;;) {
    wake_.wait_for(lock, kCheckInterval,
                   [this]() STDCHK_REQUIRES(mutex_) { return ending_ || !waiting_.empty(); });
    const bool ends = ending_;
    std::vector<Request*> requests;
    requests.swap(waiting_);
    std::shared_ptr<const Result<std::string>> page;
    lock.unlock();
    end_overdue();
    if (!requests.empty() && !ends) page = std::make_shared<const Result<std::string>>(page_());
    lock.lock();
    for (Request* const request : requests) {
      request->page = page;
      MHD_resume_connection(request->connection);
    }
    if (ends) return;
  }
}

/// Closes connections that are too old. The library has a time limit for silence only, so a client
/// that moves a byte now and then would stay.
void Endpoint::end_overdue() {
  const Time oldest = clock_.now() - connection_time_;
  const MutexLock lock(connected_mutex_);
  while (!connected_.empty() && connected_.front().since < oldest) {
    ::shutdown(connected_.front().fd, SHUT_RDWR);
    connected_.pop_front();
  }
}

}  // namespace stdchk::metrics
