#include <bascule/trainer_ref/http/http_listener.h>

#include <fcntl.h>

#include <cerrno>
#include <charconv>
#include <utility>

#include <bascule/trainer_ref/http/http_connection.h>
#include <bascule/trainer_ref/http/http_message.h>
#include <bascule/trainer_ref/http/http_wire.h>
#include <bascule/transport/status.h>
#include <bascule/transport/wire/unshared_socket.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

std::string_view remedy_of(const error_code& error) {
  return error == asio::error::address_in_use ? "; give another port, or 0 to let the system choose one" : "";
}

UniqueFd open_reserve() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

absl::StatusOr<HttpAddress> parse_http_address(std::string_view flag, std::string_view text) {
  const std::size_t colon = text.rfind(':');
  HttpAddress address;
  if (colon != text.npos && colon > 0) {
    const char* end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data() + colon + 1, end, address.port);
    address.host = text.substr(0, colon);
    if (address.host.starts_with('[') && address.host.ends_with(']'))
      address.host = address.host.substr(1, address.host.size() - 2);
    if (failure == std::errc{} && stop == end) return address;
  }
  return invalid_argument("--", flag, "=", text, ": expected HOST:PORT, as in 127.0.0.1:8000");
}

absl::StatusOr<tcp::acceptor> listen_at(asio::io_context& io, std::string_view flag, const HttpAddress& address) {
  error_code error;
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  const tcp::endpoint endpoint(asio::ip::make_address(host, error), address.port);
  const bool cut = host.find('\0') != std::string::npos;  // make_address() read only what comes before
  if (error || cut)
    return invalid_argument("--", flag, ": '", address.host, "' is not an IP address; give one, as in 127.0.0.1:8000");
  tcp::acceptor acceptor(io);
  open_unshared(acceptor, endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (!error) acceptor.non_blocking(true, error);
  if (error)
    return unavailable("--", flag, "=", address.host, ":", address.port, ": ", error.message(), remedy_of(error));
  return acceptor;
}

HttpAcceptor::HttpAcceptor(tcp::acceptor acceptor, std::string server)
    : acceptor_(std::move(acceptor)), server_(std::move(server)), reserve_(open_reserve()) {}

asio::awaitable<HttpAcceptor::Accepted> HttpAcceptor::accept(tcp::socket& socket) {
  error_code error;
  const auto accept_now = [&] {
    const tcp::endpoint bound = acceptor_.local_endpoint(error);
    if (!error) accept_unshared(acceptor_, bound.protocol(), socket, error);
  };
  do {
    co_await acceptor_.async_wait(tcp::acceptor::wait_read, with_error(error));
    if (error) co_return Accepted::kNo;
    accept_now();
  } while (error == asio::error::would_block || error == asio::error::connection_aborted);
  if (!error) co_return Accepted::kYes;
  const bool out_of_descriptors = error.value() == EMFILE || error.value() == ENFILE;
  if (!out_of_descriptors || !reserve_) {
    if (!reserve_) reserve_ = open_reserve();
    co_return Accepted::kNo;
  }
  reserve_.reset();
  accept_now();
  if (!error)
    turn_away(socket, server_, refusal(503, "this process is out of file descriptors (ulimit -n); try again later"));
  reserve_ = open_reserve();
  co_return error ? Accepted::kNo : Accepted::kTurnedAway;
}

std::string HttpAcceptor::url() const {
  error_code error;
  const tcp::endpoint bound = acceptor_.local_endpoint(error);
  const std::string host = bound.address().to_string();
  return cat("http://", bound.address().is_v6() ? cat("[", host, "]") : host, ":", bound.port());
}

void HttpAcceptor::close() {
  error_code ignored;
  acceptor_.close(ignored);
}

}  // namespace bascule::ref
