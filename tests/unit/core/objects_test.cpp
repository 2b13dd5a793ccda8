#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "core/objects/credentials.h"
#include "core/objects/instance_credentials.h"
#include "core/objects/object_attributes.h"
#include "core/objects/object_place.h"
#include "core/objects/xml_text.h"
#include "tests/support/catch.h"

namespace stdchk {
namespace {

/// Sets variables of the environment for one test.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values) {
    for (const char* name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
          "AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
          "AWS_ENDPOINT_URL_S3", "HOME", "AWS_EC2_METADATA_DISABLED",
          "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
          "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN"}) {
      const char* const value = std::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : values) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

/// A folder for one test.
struct Home {
  Home() {
    char name[] = "/tmp/stdchk-objects-XXXXXX";
    path = ::mkdtemp(name);
    std::filesystem::create_directory(path + "/.aws");
  }
  ~Home() { std::filesystem::remove_all(path); }
  void write(const std::string& text) const {
    std::ofstream(path + "/.aws/credentials") << text;
    ::chmod((path + "/.aws/credentials").c_str(), 0600);
  }
  std::string path;
};

}  // namespace

TEST_CASE("the place of an object store is bucket, prefix, endpoint and region") {
  const Environment environment({});
  const auto plain = ObjectPlace::parse("s3://my-bucket/a/b/");
  REQUIRE(plain);
  CHECK(plain->bucket == "my-bucket");
  CHECK(plain->prefix == "a/b");
  CHECK(plain->region == "us-east-1");
  CHECK(plain->key_of("x.N0.T1") == "a/b/x.N0.T1");
  CHECK(plain->url_of("a/b/x y") == "https://my-bucket.s3.us-east-1.amazonaws.com/a/b/x%20y");
  CHECK(plain->name() == "s3://my-bucket/a/b");

  const auto full =
      ObjectPlace::parse("s3://b.c?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=eu-west-1");
  REQUIRE(full);
  CHECK(full->endpoint == "http://127.0.0.1:9000");
  CHECK(full->prefix.empty());
  CHECK(full->key_of("x") == "x");
  CHECK(full->url_of("x") == "http://127.0.0.1:9000/b.c/x");
  CHECK(full->url_of("") == "http://127.0.0.1:9000/b.c");
  const auto again = ObjectPlace::parse(full->text());
  REQUIRE(again);
  CHECK(again->text() == full->text());
  CHECK(ObjectPlace::parse("s3://bucket?region=cn-north-1")->url_of("x") ==
        "https://bucket.s3.cn-north-1.amazonaws.com.cn/x");
  // Amazon's certificate covers no bucket with a dot.
  CHECK(ObjectPlace::parse("s3://b.cd")->url_of("x") ==
        "https://s3.us-east-1.amazonaws.com/b.cd/x");
}

TEST_CASE("endpoint and region come from the environment when the text has none") {
  const Environment environment(
      {{"AWS_ENDPOINT_URL_S3", "https://minio.site:9000/"}, {"AWS_DEFAULT_REGION", "site"}});
  CHECK(ObjectPlace::parse("s3://bucket/p")->text() ==
        "s3://bucket/p?endpoint=https%3A%2F%2Fminio.site%3A9000&region=site");
}

TEST_CASE("texts that are no place of an object store are refused") {
  const Environment environment({});
  for (const char* text :
       {"", "s3:bucket/x", "s3://", "s3://ab", "s3://Bucket", "s3://-bucket", "s3://bucket//x",
        "s3://bucket/../x", "s3://bucket/a/./b", "s3://bucket/a\nb", "s3://bucket?user=x",
        "s3://bucket?endpoint=ftp://x", "s3://bucket?endpoint=https://key:secret@host",
        "s3://bucket?endpoint=https://host/path", "s3://bucket?endpoint=https%3A%2F%2F",
        "s3://bucket?region=EU%0a"}) {
    INFO(text);
    CHECK_FALSE(ObjectPlace::parse(text));
  }
  // No secret of a wrong endpoint is in the message.
  const auto refused = ObjectPlace::parse("s3://bucket?endpoint=https://key:secret@host");
  CHECK(refused.error().text.find("secret") == std::string::npos);
}

TEST_CASE("credentials come from the environment, then from a profile of the file") {
  const Home home;
  home.write(
      "# a comment\n[default]\naws_access_key_id = AAA\naws_secret_access_key=bbb\n\n"
      "[ run ]\naws_access_key_id=CCC\n aws_secret_access_key = d=d \naws_session_token=eee\n");
  {
    const Environment environment({{"HOME", home.path}});
    const auto found = find_credentials();
    REQUIRE(found);
    CHECK(found->key_id == "AAA");
    CHECK(found->secret == "bbb");
    CHECK(found->session_token.empty());
  }
  {
    const Environment environment({{"HOME", home.path}, {"AWS_PROFILE", "run"}});
    const auto found = find_credentials();
    REQUIRE(found);
    CHECK(found->key_id == "CCC");
    CHECK(found->secret == "d=d");
    CHECK(found->session_token == "eee");
  }
  {
    const Environment environment({{"HOME", home.path},
                                   {"AWS_ACCESS_KEY_ID", "EEE"},
                                   {"AWS_SECRET_ACCESS_KEY", "fff"},
                                   {"AWS_SESSION_TOKEN", "ggg"}});
    CHECK(find_credentials()->key_id == "EEE");
    CHECK(find_credentials()->session_token == "ggg");
  }
}

TEST_CASE("absent credentials are an error that names the places, and a line break is refused") {
  const Home home;
  const Environment environment({{"HOME", home.path}, {"AWS_PROFILE", "none"}});
  const auto absent = find_credentials();
  REQUIRE_FALSE(absent);
  CHECK(absent.error().error.os_errno == EACCES);
  CHECK(absent.error().text.find("[none]") != std::string::npos);
  CHECK(absent.error().text.find(home.path) != std::string::npos);
  ::setenv("AWS_ACCESS_KEY_ID", "A", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "secret\nX-Evil: 1", 1);
  const auto broken = find_credentials();
  REQUIRE_FALSE(broken);
  CHECK(broken.error().text.find("secret") == std::string::npos);
}

TEST_CASE("a user who sets half of the credentials, or names a profile, gets no others") {
  const Home home;
  // The service would not answer here; a text that names it was asked.
  const std::string service = "http://127.0.0.1:1";
  const auto is_asked = [](const std::map<std::string, std::string>& values) {
    const Environment environment(values);
    const auto found = find_credentials();
    REQUIRE_FALSE(found);
    return found.error().text.find("services of this host") != std::string::npos;
  };
  std::map<std::string, std::string> none{{"HOME", home.path},
                                          {"AWS_EC2_METADATA_SERVICE_ENDPOINT", service}};
  CHECK(is_asked(none));
  const auto with = [&](const std::string& name, const std::string& value) {
    auto values = none;
    values[name] = value;
    return is_asked(values);
  };
  CHECK_FALSE(with("AWS_ACCESS_KEY_ID", "A"));
  CHECK_FALSE(with("AWS_SECRET_ACCESS_KEY", "b"));
  CHECK_FALSE(with("AWS_PROFILE", "default"));
  home.write("[default]\naws_access_key_id=AAA\n");
  CHECK_FALSE(is_asked(none));
}

TEST_CASE("only a host's own addresses are asked for credentials in clear") {
  for (const char* url : {"http://127.0.0.1:80/x", "http://localhost/x", "http://[::1]:7/x",
                          "http://169.254.170.2/v2/x", "http://169.254.170.23/v1/credentials",
                          "http://[fd00:ec2::23]/v1", "https://any.host/x"}) {
    INFO(url);
    CHECK(is_container_url(url));
  }
  for (const char* url :
       {"", "http://", "https://", "https:///x", "http://evil.host/x", "http://127.0.0.1.evil/x",
        "http://127.0.0.1@evil/x", "https://127.0.0.1@evil/x", "http://169.254.169.254/x",
        "http://localhost\r\nX: y", "ftp://127.0.0.1/x", "http://[::1",
        "http://127.0.0.1\\@evil"}) {
    INFO(url);
    CHECK_FALSE(is_container_url(url));
  }
  CHECK(is_instance_url("http://169.254.169.254"));
  CHECK(is_instance_url("http://[fd00:ec2::254]"));
  CHECK_FALSE(is_instance_url("http://169.254.170.2"));
  CHECK_FALSE(is_instance_url("https://evil.host"));
  const Home home;
  const Environment environment(
      {{"HOME", home.path}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://evil.host/x"}});
  CHECK(find_credentials().error().text.find("neither https nor an address of this host") !=
        std::string::npos);
}

TEST_CASE("the answer of a host's service has a key, a secret, a token and an end") {
  constexpr std::int64_t kNow = 1'767'225'600;  // 2026-01-01T00:00:00Z
  const auto answer = [](const std::string& expires) {
    return R"({"Code":"Success","AccessKeyId":"A","SecretAccessKey":"b","Token":"c","Expiration":")" +
           expires + "\"}";
  };
  const auto found = parse_host_credentials(answer("2026-01-01T06:00:00Z"), kNow);
  REQUIRE(found);
  CHECK(found->key_id == "A");
  CHECK(found->secret == "b");
  CHECK(found->session_token == "c");
  CHECK(found->expires_s == kNow + 6 * 3600);
  CHECK(found->renew_at_s == kNow + 6 * 3600 - 300);
  CHECK(parse_host_credentials(
            R"( {"N" : 5, "AccessKeyId":"A","SecretAccessKey":"\"\\\/","Token":"c\u003d" } )", kNow)
            ->session_token == "c=");
  // The service repeats the last ones shortly before their end: it is not asked at each request.
  CHECK(parse_host_credentials(answer("2026-01-01T00:01:40.5Z"), kNow)->renew_at_s == kNow + 50);
  CHECK(parse_host_credentials(answer("2025-12-31T00:00:00Z"), kNow)->renew_at_s == kNow + 1);
  CHECK(parse_host_credentials(R"({"AccessKeyId":"A","SecretAccessKey":"b","Token":"c"})", kNow)
            ->renew_at_s == 0);
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{"), std::string(50'000, '['),
        std::string(R"({"AccessKeyId":"A","SecretAccessKey":"b"})"),
        std::string(R"({"AccessKeyId":"A","SecretAccessKey":"b","Token":"c"} x)"),
        std::string(R"({"AccessKeyId":"A","SecretAccessKey":"b","Token":"c)"),
        std::string(R"({"AccessKeyId":"A","SecretAccessKey":"b","Token":"c\u)"),
        std::string(R"({"AccessKeyId":"A","SecretAccessKey":"b","Token":["c"]})"),
        std::string(R"({"AccessKeyId":1,"SecretAccessKey":"b","Token":"c"})"),
        std::string(R"({"Code":"AssumeRoleUnauthorizedAccess","AccessKeyId":"A",)"
                    R"("SecretAccessKey":"b","Token":"c"})"),
        answer("tomorrow")}) {
    INFO(text.substr(0, 100));
    CHECK_FALSE(parse_host_credentials(text, kNow));
  }
}

TEST_CASE("an object's metadata keeps the attributes of its file") {
  ObjectAttributes attributes;
  attributes.mode = 04755;
  attributes.uid = 4'294'967'294;
  attributes.gid = 7;
  attributes.mtime_ns = -5;
  attributes.attempt = "7.3";
  attributes.crcs = {1, 0xFFFFFFFF, 0};
  const auto back = ObjectAttributes::parse(attributes.metadata());
  REQUIRE(back);
  CHECK(back->mode == 04755);
  CHECK(back->uid == 4'294'967'294);
  CHECK(back->mtime_ns == -5);
  CHECK(back->attempt == "7.3");
  CHECK(back->crcs == attributes.crcs);
  CHECK_FALSE(ObjectAttributes::parse({}));
  auto damaged = attributes.metadata();
  damaged["stdchk-crc32c"] = "16777216:zzzzzzzz";
  CHECK(ObjectAttributes::parse(damaged)->crcs.empty());
  damaged["stdchk-crc32c"] = "18446744073709551615:00000001";
  CHECK(ObjectAttributes::parse(damaged)->crcs.empty());
  damaged["stdchk-mode"] = "9";
  CHECK_FALSE(ObjectAttributes::parse(damaged));
}

TEST_CASE("an object's metadata stays below 2 KiB for a file of 5 TiB") {
  const std::uint64_t size = std::uint64_t{5} << 40;
  ObjectAttributes attributes;
  attributes.attempt = "18446744073709551615.18446744073709551615";
  attributes.range_bytes = ObjectAttributes::range_bytes_of(size);
  attributes.crcs.resize((size + attributes.range_bytes - 1) / attributes.range_bytes, 0xFFFFFFFF);
  std::size_t bytes = 0;
  for (const auto& [name, value] : attributes.metadata()) bytes += name.size() + value.size();
  CHECK(bytes < 2048);
  CHECK(ObjectAttributes::parse(attributes.metadata())->crcs.size() == attributes.crcs.size());
}

TEST_CASE("elements of an answer are found in any bytes") {
  const std::string xml =
      "<?xml version=\"1.0\"?><R xmlns=\"x\"><Key>a&amp;b&#39;&lt;</Key><Keys>n</Keys><Key/>"
      "<Part><N>1</N></Part><Part><N>2</N></Part></R>";
  CHECK(xml_text(xml, "Key") == "a&b'<");
  CHECK(xml_elements(xml, "Key").size() == 2);
  CHECK(xml_elements(xml, "Part").size() == 2);
  CHECK(xml_text(xml_elements(xml, "Part")[1], "N") == "2");
  CHECK_FALSE(xml_text(xml, "None"));
  CHECK(xml_escaped("\"a&b\"") == "&quot;a&amp;b&quot;");
  for (const char* text :
       {"<Key", "<Key>", "<Key>a", "<Key >a</Key", "&#;", "<Key>&#99999999999;</Key>"}) {
    (void)xml_text(text, "Key");
  }
}

}  // namespace stdchk
