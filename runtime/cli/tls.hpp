#pragma once

#include <string>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

/// TLS over an open TCP stream, which it borrows: the system's authorities, TLS 1.2 at least, the host's name checked.
namespace holt::runtime::cli {

struct tls_stream {
  tls_stream(boost::beast::tcp_stream& tcp, const std::string& host) : stream(tcp, context) {
    boost::system::error_code ec;
    context.set_default_verify_paths(ec);
    context.set_options(boost::asio::ssl::context::default_workarounds | boost::asio::ssl::context::no_sslv2
                        | boost::asio::ssl::context::no_sslv3 | boost::asio::ssl::context::no_tlsv1
                        | boost::asio::ssl::context::no_tlsv1_1);
    stream.set_verify_mode(boost::asio::ssl::verify_peer);
    stream.set_verify_callback(boost::asio::ssl::host_name_verification(host));
    boost::asio::ip::make_address(host, ec);
    if (ec) // names only: an address is no server name (RFC 6066)
      SSL_set_tlsext_host_name(stream.native_handle(), host.c_str());
  }

  boost::asio::ssl::context context{boost::asio::ssl::context::tls_client};
  boost::beast::ssl_stream<boost::beast::tcp_stream&> stream;
};

} // namespace holt::runtime::cli
