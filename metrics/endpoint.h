#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/problem.h"
#include "core/base/result.h"

struct MHD_Connection;
struct MHD_Daemon;

namespace stdchk::metrics {

/// An Endpoint is a small HTTP server: it answers GET and HEAD of /metrics with a page of figures,
/// every other request with an error. It has no authentication.
///
/// Requests that arrive together, or while a page is made, share one page. A connection carries one
/// request.
///
/// | a request                              | gets                                    |
/// |----------------------------------------|-----------------------------------------|
/// | GET or HEAD of /metrics                | 200; 503 when the page answers an error |
/// | of another path                        | 404                                     |
/// | by another method                      | 405                                     |
/// | with a body                            | 413                                     |
/// | of HTTP/1.1 without Host, or malformed | 400                                     |
/// | with a head that is too long           | 4xx, or its connection is closed        |
/// | that takes too long to come, or whose  | its connection is closed                |
/// | answer takes too long to go            |                                         |
///
/// Owns: the listening socket, a thread for connections, a thread that makes pages.
/// Threads: call start() and the destructor on one thread. The endpoint's threads take no signals.
/// Errors: start() returns a sentence that says what to do.
/// Limits: the constants below. Connections above the limit wait in the kernel.
class Endpoint {
 public:
  /// Makes the text of a page. Called on the endpoint's own thread, one call at a time. Must return
  /// within seconds.
  using Page = std::function<Result<std::string>()>;

  static constexpr unsigned kConnectionsMax = 64;
  static constexpr std::size_t kRequestBytesMax = 8192;  ///< for one request and its answer's head
  static constexpr Duration kConnectionTimeMax = std::chrono::seconds(10);

  /// Listens at `listen`: "ADDRESS:PORT", "[ADDRESS]:PORT" for IPv6, or "PORT", which means
  /// 127.0.0.1. Port 0 takes a free port. A connection is closed `connection_time` after its start,
  /// or up to a second later.
  static Outcome<std::unique_ptr<Endpoint>> start(const std::string& listen, Page page,
                                                  Duration connection_time = kConnectionTimeMax);
  /// Waits for a page that is being made.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// The address with its port, such as "127.0.0.1:40123".
  const std::string& address() const { return address_; }

 private:
  /// A Request is an HTTP request and, once made, its page.
  struct Request {
    MHD_Connection* connection = nullptr;
    bool waits = false;                               ///< make_pages() has it, or had it
    std::shared_ptr<const Result<std::string>> page;  ///< set when it can be answered
  };
  struct Connected {
    int fd = -1;
    Time since{};
  };
  struct Callbacks;  ///< functions that libmicrohttpd calls

  Endpoint(Page page, Duration connection_time);
  bool run(int listening);
  int handle(MHD_Connection* connection, const std::string& path, const std::string& method,
             Request*& request);
  void make_pages();
  void end_overdue();

  const Page page_;
  const Duration connection_time_;
  const SystemClock clock_;
  std::string address_;
  MHD_Daemon* daemon_ = nullptr;

  Mutex mutex_;
  CondVar wake_;
  std::vector<Request*> waiting_ STDCHK_GUARDED_BY(mutex_);  ///< requests without a page
  bool ending_ STDCHK_GUARDED_BY(mutex_) = false;
  std::thread maker_;

  Mutex connected_mutex_;
  std::list<Connected> connected_ STDCHK_GUARDED_BY(connected_mutex_);  ///< the oldest first
};

}  // namespace stdchk::metrics
