// Tests an endpoint over loopback: its answers, and the clients for which it does not wait.
#include "metrics/endpoint.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/support/catch.h"

namespace stdchk::metrics {
namespace {

using namespace std::chrono_literals;
using Timer = std::chrono::steady_clock;

/// A connection to an endpoint on 127.0.0.1.
class Client {
 public:
  explicit Client(const Endpoint& to) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string& text = to.address();
    address.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1))));
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& text) const {
    (void)!::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  /// Receives until the other end closes, or no byte has come for `longest`.
  std::string receive(std::chrono::milliseconds longest = 20s) const {
    std::string all;
    char bytes[4096];
    for (;;) {
      pollfd ready{fd_, POLLIN, 0};
      if (::poll(&ready, 1, static_cast<int>(longest.count())) <= 0) return all + "(silence)";
      const ssize_t length = ::recv(fd_, bytes, sizeof(bytes), 0);
      if (length <= 0) return all;
      all.append(bytes, static_cast<std::size_t>(length));
    }
  }

 private:
  int fd_;
};

std::unique_ptr<Endpoint> start(Endpoint::Page page,
                                Duration connection_time = Endpoint::kConnectionTimeMax) {
  auto endpoint = Endpoint::start("127.0.0.1:0", std::move(page), connection_time);
  REQUIRE(endpoint.has_value());
  return std::move(*endpoint);
}

std::string ask(const Endpoint& endpoint, const std::string& request) {
  const Client client(endpoint);
  client.send(request);
  return client.receive();
}

std::string get(const Endpoint& endpoint) {
  return ask(endpoint, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
}

std::string status_of(const std::string& answer) { return answer.substr(0, answer.find("\r\n")); }

Result<std::string> small_page() { return std::string("stdchk_a 1\n"); }

/// A Gate holds back a page until the test opens it.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void await_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }
  void open() {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

}  // namespace

TEST_CASE("GET and HEAD of /metrics are answered, and the connection ends") {
  const auto endpoint = start(small_page);
  const std::string answer = get(*endpoint);
  CHECK(status_of(answer) == "HTTP/1.1 200 OK");
  CHECK(answer.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n") !=
        std::string::npos);
  CHECK(answer.find("Content-Length: 11\r\n") != std::string::npos);
  CHECK(answer.ends_with("\r\n\r\nstdchk_a 1\n"));
  const std::string head = ask(*endpoint, "HEAD /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
  CHECK(status_of(head) == "HTTP/1.1 200 OK");
  CHECK(head.find("Content-Length: 11\r\n") != std::string::npos);
  CHECK(head.ends_with("\r\n\r\n"));
  const std::string query = ask(*endpoint, "GET /metrics?a=b HTTP/1.1\r\nHost: here\r\n\r\n");
  CHECK(status_of(query) == "HTTP/1.1 200 OK");
  const std::string old = ask(*endpoint, "GET /metrics HTTP/1.0\r\n\r\n");
  CHECK(status_of(old).ends_with(" 200 OK"));
}

TEST_CASE("other requests are refused") {
  const auto endpoint = start(small_page);
  const std::string host = " HTTP/1.1\r\nHost: here\r\n";
  CHECK(status_of(ask(*endpoint, "GET /" + host + "\r\n")) == "HTTP/1.1 404 Not Found");
  CHECK(status_of(ask(*endpoint, "GET /metrics/" + host + "\r\n")) == "HTTP/1.1 404 Not Found");
  CHECK(status_of(ask(*endpoint, "GET /../etc/passwd" + host + "\r\n")) ==
        "HTTP/1.1 404 Not Found");
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "get", "NONSENSE"}) {
    INFO(method);
    const std::string answer = ask(*endpoint, method + (" /metrics" + host + "\r\n"));
    CHECK(status_of(answer) == "HTTP/1.1 405 Method Not Allowed");
    CHECK(answer.find("Allow: GET, HEAD\r\n") != std::string::npos);
  }
  CHECK(status_of(ask(*endpoint, "GET /metrics HTTP/1.1\r\n\r\n")) == "HTTP/1.1 400 Bad Request");
  for (const char* body : {"Content-Length: 5\r\n\r\nhello", "Content-Length: 1000000000\r\n\r\n",
                           "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"}) {
    INFO(body);
    CHECK(status_of(ask(*endpoint, "GET /metrics" + host + body)).find(" 413 ") !=
          std::string::npos);
  }
  CHECK(status_of(get(*endpoint)) == "HTTP/1.1 200 OK");
}

TEST_CASE("a request that is too long, or no HTTP at all, ends its connection only") {
  const auto endpoint = start(small_page);
  const std::string name(2 * Endpoint::kRequestBytesMax, 'a');
  for (const std::string& request :
       {"GET /" + name + " HTTP/1.1\r\nHost: here\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: here\r\nX: " + name + "\r\n\r\n",
        std::string("\x16\x03\x01\x02\x00 binary\r\n\r\n", 16), std::string("GET\r\n\r\n")}) {
    const std::string answer = ask(*endpoint, request);
    CHECK(answer.find(" 200 ") == std::string::npos);
    CHECK(answer.find("stdchk_a") == std::string::npos);
    CHECK(answer.find("(silence)") == std::string::npos);
  }
  CHECK(status_of(get(*endpoint)) == "HTTP/1.1 200 OK");
}

TEST_CASE("a daemon that does not answer in time is told of") {
  const auto endpoint =
      start([]() -> Result<std::string> { return fail(Code::kDeadline, "reactor.ask"); });
  const std::string answer = get(*endpoint);
  CHECK(status_of(answer) == "HTTP/1.1 503 Service Unavailable");
  CHECK(answer.find("deadline") != std::string::npos);
}

TEST_CASE("requests that come while a page is made get one page together") {
  Gate gate;
  std::atomic<int> made{0};
  const auto endpoint = start([&]() -> Result<std::string> {
    gate.wait();
    return "stdchk_a " + std::to_string(++made) + "\n";
  });
  std::vector<std::unique_ptr<Client>> clients;
  const auto ask_one = [&] {
    clients.push_back(std::make_unique<Client>(*endpoint));
    clients.back()->send("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
  };
  ask_one();
  gate.await_one();
  for (int i = 0; i < 20; ++i) ask_one();
  // A later request has been refused, so most of the earlier requests are waiting by now.
  CHECK(status_of(ask(*endpoint, "GET /other HTTP/1.1\r\nHost: here\r\n\r\n")) ==
        "HTTP/1.1 404 Not Found");
  gate.open();
  for (const auto& client : clients) {
    CHECK(status_of(client->receive()) == "HTTP/1.1 200 OK");
  }
  CHECK(made < 10);
}

TEST_CASE("more connections than are served at once wait for their turn") {
  const auto endpoint = start(small_page);
  std::vector<std::unique_ptr<Client>> clients;
  for (unsigned i = 0; i < 2 * Endpoint::kConnectionsMax; ++i) {
    clients.push_back(std::make_unique<Client>(*endpoint));
  }
  for (const auto& client : clients) client->send("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
  std::size_t good = 0;
  for (const auto& client : clients) good += status_of(client->receive()).ends_with(" 200 OK");
  CHECK(good == clients.size());
}

TEST_CASE("who sends a byte now and then is dropped, and keeps nobody") {
  const auto endpoint = start(small_page, 300ms);
  const Client slow(*endpoint);
  std::atomic<bool> stop{false};
  std::thread drips([&] {
    while (!stop) {
      slow.send("G");
      std::this_thread::sleep_for(20ms);
    }
  });
  CHECK(status_of(get(*endpoint)) == "HTTP/1.1 200 OK");
  const auto began = Timer::now();
  const std::string got = slow.receive();
  stop = true;
  drips.join();
  CHECK(got.find("(silence)") == std::string::npos);
  CHECK(Timer::now() - began < 15s);
}

TEST_CASE("who does not read its answer is dropped") {
  const std::string large(64U << 20U, 'a');
  const auto endpoint = start([&]() -> Result<std::string> { return large; }, 300ms);
  const Client deaf(*endpoint);
  deaf.send("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
  std::this_thread::sleep_for(3s);  // the drop is not visible from here
  CHECK(deaf.receive().size() < large.size());
}

TEST_CASE("an endpoint ends while clients are connected and a page is made") {
  Gate gate;
  auto endpoint = start([&]() -> Result<std::string> {
    gate.wait();
    return small_page();
  });
  const Client idle(*endpoint);
  const Client asking(*endpoint);
  asking.send("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
  gate.await_one();
  std::thread opens([&] {
    std::this_thread::sleep_for(50ms);
    gate.open();
  });
  endpoint.reset();
  opens.join();
  CHECK(idle.receive().find("(silence)") == std::string::npos);
  CHECK(asking.receive().find("(silence)") == std::string::npos);
}

TEST_CASE("where an endpoint cannot listen, the sentence says what to do") {
  const auto endpoint = start(small_page);
  const auto error = [](const std::string& listen) {
    const auto second = Endpoint::start(listen, small_page);
    return second ? std::string() : second.error().text;
  };
  CHECK(error(endpoint->address()).find("another process listens there; choose another port") !=
        std::string::npos);
  CHECK(error("192.0.2.1:0").find("this host has no such address") != std::string::npos);
  CHECK(error("no such host.invalid:0").find("choose an address of this host") !=
        std::string::npos);
  CHECK(error("nonsense").find("is not ADDRESS:PORT") != std::string::npos);
}

TEST_CASE("an endpoint without an address is on loopback") {
  const auto endpoint = Endpoint::start("0", small_page);
  REQUIRE(endpoint.has_value());
  CHECK((*endpoint)->address().starts_with("127.0.0.1:"));
}

}  // namespace stdchk::metrics
