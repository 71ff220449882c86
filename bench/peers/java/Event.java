import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** An event of bench/kafka/kafka_load.c, and what jobs/kafka_feature.leat tells of it, byte for byte. */
final class Event {
  private final JsonFactory json = new JsonFactory();
  private final StringBuilder text = new StringBuilder(160);
  long id;
  long user;
  long value;
  long sent;

  void parse(byte[] bytes) throws IOException {
    try (JsonParser parser = json.createParser(bytes)) {
      parser.nextToken();
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        String name = parser.currentName();
        long number = parser.nextLongValue(0);
        switch (name) {
          case "id" -> id = number;
          case "user" -> user = number;
          case "value" -> value = number;
          case "sent" -> sent = number;
          default -> { }
        }
      }
    }
  }

  /** count, total: of the user, this event included; appended: by the broker, in milliseconds. */
  byte[] tell(long count, long total, long appended) {
    text.setLength(0);
    text.append("{\"id\":").append(id).append(",\"user\":").append(user).append(",\"n\":").append(count)
        .append(",\"total\":").append(total).append(",\"sent\":").append(sent).append(",\"appended\":")
        .append(appended).append('}');
    return text.toString().getBytes(StandardCharsets.ISO_8859_1);
  }
}
