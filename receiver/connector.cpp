#include <bascule/receiver/connector.h>

#include <unistd.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <iterator>
#include <string>

#include <bascule/transport/descriptor_limit.h>
#include <bascule/transport/posix/peer.h>
#include <bascule/transport/posix/private_folder.h>
#include <bascule/transport/status.h>
#include <bascule/transport/threads.h>
#include <bascule/transport/wire/unshared_socket.h>

namespace bascule::inline v0 {
namespace {

namespace asio = boost::asio;
using Error = boost::system::error_code;
using Tcp = asio::ip::tcp;
using Addresses = Tcp::resolver::results_type;

// Returns UNAVAILABLE if no sender is there, or it does not answer in time; another error if a sender may be there and
// we have no right to ask. Asio's no_buffer_space means that the queue of a stopped sender is full.
absl::Status why_not_connected(const Error& error, const std::filesystem::path& socket) {
  namespace errors = asio::error;
  if (error == boost::system::errc::no_such_file_or_directory || error == errors::connection_refused ||
      error == errors::no_buffer_space || error == errors::timed_out)
    return unavailable("no sender is listening at ", socket.string());
  return errno_status(error.value(), cat("connect to ", socket.string()));
}

}  // namespace

Connector::Connector(asio::io_context& io, HandlerScope scope, const Endpoint& endpoint, std::optional<Token> token)
    : scope_(std::move(scope)),
      endpoint_(endpoint),
      token_(std::move(token)),
      local_(io),
      tcp_(io),
      resolver_(io),
      deadline_(io) {}

void Connector::connect(OnDone done) {
  cancel();
  done_ = std::move(done);
  deadline_.expires_after(on_clock(endpoint_.suspect_after));
  deadline_.async_wait(scope_([this, attempt = attempt_](const Error& cancelled) {
    if (!cancelled && attempt == attempt_)
      finish(unavailable("no connection to ", endpoint_.place(), " within ",
                         absl::FormatDuration(endpoint_.suspect_after)));
  }));
  if (endpoint_.over_tcp()) {
    connect_host();
  } else {
    connect_folder();
  }
}

void Connector::cancel() {
  ++attempt_;
  done_ = nullptr;
  if (handshake_) handshake_->close();
  handshake_.reset();
  Error ignored;
  local_.close(ignored);
  tcp_.close(ignored);
  resolver_.cancel();
  deadline_.cancel();
}

void Connector::finish(absl::StatusOr<std::shared_ptr<Channel>> result) {
  const OnDone done = std::move(done_);
  cancel();
  done(std::move(result));
}

void Connector::connect_folder() {
  const std::string elsewhere =
      endpoint_.listen ? cat("; an engine of another host takes ", endpoint_.scheme, "://", endpoint_.listen->text())
                       : "";
  const absl::StatusOr<UniqueFd> folder = open_private_folder(endpoint_.folder, endpoint_.own_folder());
  found_ = found_ || folder.ok();
  if (absl::IsNotFound(folder.status()))
    return finish(found_ ? unavailable("the folder ", endpoint_.place(), " was removed; a sender that lives there ",
                                       "cannot be found: restart it, in a folder that no clean-up removes")
                         : unavailable("no sender has been at ", endpoint_.place(), " yet", elsewhere));
  if (!folder.ok()) return finish(folder.status());
  const std::filesystem::path path = endpoint_.control_socket();
  const absl::StatusOr<UniqueFd> socket = open_private_socket(folder->get(), path.filename(), endpoint_.folder);
  if (absl::IsNotFound(socket.status())) return finish(unavailable("no sender is listening at ", path.string()));
  if (!socket.ok()) return finish(socket.status());
  const absl::StatusOr<std::string> through = path_through(socket->get());
  if (!through.ok()) return finish(through.status());
  Error opened;
  open_unshared(local_, asio::local::stream_protocol(), opened);
  if (opened) return finish(errno_status(opened.value(), cat("connect to ", endpoint_.place())));
  // Asio calls connect() at once, while the descriptor is open.
  local_.async_connect(*through, scope_([this, attempt = attempt_](const Error& error) {
    if (attempt != attempt_) return;
    if (error) return finish(why_not_connected(error, endpoint_.control_socket()));
    if (absl::Status peer = check_peer(local_.native_handle(), ::geteuid()); !peer.ok()) return finish(std::move(peer));
    const auto channel = std::make_shared<Channel>(Channel::Socket(std::move(local_)));
    channel->decode_by(decoder_);
    finish(channel);
  }));
}

void Connector::connect_host() {
  Error no_address;
  const asio::ip::address address = asio::ip::make_address(endpoint_.host, no_address);
  if (!no_address) return connect_to(Addresses::create({address, endpoint_.port}, "", ""), 0);
  absl::Status begun = starting_threads("look up a host", [this] {  // Asio starts a thread for it
    resolver_.async_resolve(endpoint_.host, std::to_string(endpoint_.port),
                            scope_([this, attempt = attempt_](const Error& error, const Addresses& addresses) {
                              if (attempt != attempt_) return;
                              if (!error) return connect_to(addresses, 0);
                              const int shortage = why_no_descriptor();  // which getaddrinfo() does not report
                              finish(unavailable("look up the host ", endpoint_.host, ": ",
                                                 shortage != 0 ? errno_text(shortage) : error.message()));
                            }));
    return absl::OkStatus();
  });
  if (!begun.ok()) finish(std::move(begun));
}

void Connector::connect_to(const Addresses& addresses, std::size_t next) {
  if (next == addresses.size()) return finish(unavailable("the host ", endpoint_.host, " has no address"));
  const Tcp::endpoint address = std::next(addresses.begin(), static_cast<std::ptrdiff_t>(next))->endpoint();
  Error ignored, opened;
  tcp_.close(ignored);
  open_unshared(tcp_, address.protocol(), opened);
  if (opened) return finish(errno_status(opened.value(), cat("connect to ", endpoint_.place())));
  tcp_.async_connect(
      address, scope_([this, addresses, next, attempt = attempt_](const Error& error) {
        if (attempt != attempt_) return;
        if (error && next + 1 < addresses.size()) return connect_to(addresses, next + 1);
        if (error) return finish(unavailable("no sender is listening at ", endpoint_.place(), ": ", error.message()));
        Error unset;
        tcp_.set_option(Tcp::no_delay(true), unset);  // a round exchanges small messages in turn
        shake_hands();
      }));
}

void Connector::shake_hands() {
  if (!tls_) {
    absl::StatusOr<TlsContext> made = TlsContext::make(Role::kReceiver, *token_, endpoint_.scheme);
    if (!made.ok()) return finish(made.status());
    tls_ = *std::move(made);
  }
  absl::StatusOr<TlsSession> session = tls_->session();
  if (!session.ok()) return finish(session.status());
  handshake_ = std::make_shared<TlsHandshake>(Channel::Socket(std::move(tcp_)), *std::move(session));
  handshake_->start(scope_([this](absl::StatusOr<std::shared_ptr<Channel>> channel) {
    if (!channel.ok()) return finish(annotate(channel.status(), "the sender"));
    (*channel)->decode_by(decoder_);
    finish(std::move(channel));
  }));
}

}  // namespace bascule::inline v0
