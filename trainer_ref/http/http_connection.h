// One connection of an HTTP server: reads requests within bounds, and writes answers so that they arrive.
//
// Threads: its io_context's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include "absl/time/time.h"
#include <bascule/trainer_ref/http/http_message.h>

namespace bascule::ref {

struct HttpLimits {
  std::uint64_t max_body_bytes = std::uint64_t{8} << 20;
  std::uint32_t max_header_bytes = 16 << 10;
  absl::Duration idle_timeout = absl::Seconds(75);      // for a whole request to arrive, the pause before it included
  std::string_view body_advice = "send fewer prompts";  // to a client whose body is too large
};

class HttpConnection {
 public:
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;
  // Returns the answer to a request whose body is not read, or nullopt if it is. `held` means that the client sends the
  // body only after an interim answer (Expect: 100-continue).
  using Judge = std::function<std::optional<HttpAnswer>(const HttpHeader& header, bool held)>;

  // `server` is the program's name in its answers. No program that this one starts inherits the socket.
  HttpConnection(boost::asio::ip::tcp::socket socket, std::string server);

  // Adds the fields that all answers to a request have, whatever they answer.
  using AddFields = std::function<void(const HttpHeader& request, HttpAnswer& answer)>;
  void add_to_answers(AddFields add) { add_fields_ = std::move(add); }

  // Returns the next request, whole; its target begins with the path, even if the client wrote a whole URL. Returns
  // nullopt if the connection is over; the client was told the reason if possible.
  Awaitable<std::optional<HttpRequest>> read(const HttpLimits& limits, const Judge& judge);
  // Ends read() in progress with this answer, whatever has come of the request.
  void give_way(HttpAnswer why);
  // Returns whether the connection stays open: the answer was written, and `keep_alive` is true. An answer to HEAD is
  // sent without its body.
  Awaitable<bool> write(HttpAnswer answer, bool keep_alive);

  // An answer whose body is written piece by piece: `head` without its body, then pieces that are not empty. Each call
  // returns whether the client still reads: one that reads nothing for half a minute is given up. `version` is the
  // request's: a client of version 10 gets no chunks, and reads until the connection ends.
  Awaitable<bool> begin_stream(HttpAnswer head, unsigned version, bool keep_alive);
  Awaitable<bool> write_stream(std::string piece);
  Awaitable<bool> end_stream();  // returns whether the connection stays open

  // True between reading a request and the end of its answer. If it is not busy, it may be closed at any time.
  bool busy() const { return busy_; }
  void set_busy(bool busy);
  // Whether a request was answered and nothing of another one has come. Clients expect that such a connection ends.
  bool between_requests() const { return !busy_ && answered_ && !arriving_; }
  // The time when it was made, when its last request came, or when it stopped being busy, whichever was last.
  std::chrono::steady_clock::time_point idle_since() const { return idle_since_; }

  // Calls `hung_up` when the client hangs up, until unwatch(). A client that already sends its next request is no
  // longer watched. A client that shuts down only its sending side, as `nc` does, still reads. TCP can tell it apart
  // from one that is gone only by the response to written bytes. So an interim answer is written to it, which HTTP lets
  // every client of version 11 skip; in a stream, its events serve this purpose. A client of version 10 allows no
  // interim answer: it counts as hung up, unless its stream has begun. `version` is the request's.
  void watch(unsigned version, std::function<void()> hung_up);
  void unwatch();

  void finish();  // reads and writes end; what waits for the client sees its end
  void close();   // ends everything in progress now

 private:
  struct Watch;
  std::string head_of(HttpAnswer& answer, bool keep_alive) const;
  static void on_readable(const std::shared_ptr<Watch>& watch);
  Awaitable<bool> send(std::string_view bytes);
  Awaitable<void> refuse(HttpAnswer answer);
  Awaitable<void> linger();

  const std::string server_;
  AddFields add_fields_;
  HttpAnswer added_;       // what add_fields_ adds for the request
  unsigned version_ = 11;  // of the request
  std::optional<HttpAnswer> gives_way_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<Watch> watch_;         // null if not watched
  bool head_ = false;                    // the last request read was HEAD
  bool chunked_ = false, kept_ = false;  // of the stream
  bool busy_ = false, answered_ = false, arriving_ = false;
  std::chrono::steady_clock::time_point idle_since_ = std::chrono::steady_clock::now();
};

// Makes room for a newcomer: closes and removes the one of `connections` that has been idle longest, if any is.
void close_longest_idle(std::set<HttpConnection*>& connections);

// Answers a client that is not served, as far as that takes no time, and hangs up.
void turn_away(boost::asio::ip::tcp::socket& socket, const std::string& server, HttpAnswer why);

}  // namespace bascule::ref
