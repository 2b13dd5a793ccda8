#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tl/expected.hpp>
#include <vector>

#include "core/clock.h"
#include "core/result.h"

struct MHD_Connection;
struct MHD_Daemon;

namespace stdchk::metrics {

/// An Endpoint answers GET and HEAD of /metrics by HTTP, with what a Page says, and every other
/// request with an error. It has no authentication.
///
/// Requests that come while the page is made, or together, get one page. A connection carries one
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
/// Threads: start() and the destructor: one. Neither thread takes signals.
/// Errors: start() answers a sentence that says what to do.
/// Limits: below. Connections above the limit wait in the kernel.
class Endpoint {
 public:
  /// The text; on the endpoint's own thread, one call at a time. Must return within seconds.
  using Page = std::function<Result<std::string>()>;

  static constexpr unsigned kConnectionsMax = 64;
  static constexpr std::size_t kRequestBytesMax = 8192;  ///< with what its answer's head takes
  static constexpr Duration kConnectionTimeMax = std::chrono::seconds(10);

  /// `listen`: "ADDRESS:PORT", "[ADDRESS]:PORT" for IPv6, or "PORT", which is on 127.0.0.1. Port 0:
  /// a free one. A connection ends `connection_time` after it came, at the latest a second later.
  static tl::expected<std::unique_ptr<Endpoint>, std::string> start(
      const std::string& listen, Page page, Duration connection_time = kConnectionTimeMax);
  /// Waits for the page that is being made.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Where it listens: "127.0.0.1:40123".
  const std::string& address() const { return address_; }

 private:
  /// A Request is one that waits for its page, or has it.
  struct Request {
    MHD_Connection* connection = nullptr;
    bool waits = false;                               ///< was handed to make_pages()
    std::shared_ptr<const Result<std::string>> page;  ///< set: answered
  };
  struct Connected {
    int fd = -1;
    Time since{};
  };
  struct Callbacks;  ///< libmicrohttpd's

  Endpoint(Page page, Duration connection_time);
  bool run(int listening);
  int handle(MHD_Connection* connection, const std::string& path, const std::string& method,
             Request*& request);
  void make_pages();
  void end_late();

  const Page page_;
  const Duration connection_time_;
  const SystemClock clock_;
  std::string address_;
  MHD_Daemon* daemon_ = nullptr;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Request*> waiting_;  ///< guarded: for a page
  bool ending_ = false;            ///< guarded
  std::thread maker_;

  std::mutex connected_mutex_;
  std::list<Connected> connected_;  ///< guarded; the oldest first
};

}  // namespace stdchk::metrics
