import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.io.FileInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.List;

/** A server that speaks MongoDB's protocol, with its data in memory: PORT, and for TLS the files of a key and a certificate. */
public class Server {
    public static void main(String[] words) throws Exception {
        MongoServer server = new MongoServer(new MemoryBackend().version(new Oldest()));
        if (words.length > 1) {
            String pem = Files.readString(Path.of(words[1])).replaceAll("-----[A-Z ]+-----|\\s", "");
            var key = new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem));
            var certificate = CertificateFactory.getInstance("X.509").generateCertificate(new FileInputStream(words[2]));
            server.enableSsl(KeyFactory.getInstance("EC").generatePrivate(key), null, (X509Certificate) certificate);
        }
        server.bind("127.0.0.1", Integer.parseInt(words[0]));
        Thread.currentThread().join();
    }

    /** The oldest version that the client takes: MongoDB 4.4. */
    static class Oldest implements MongoVersion {
        public List<Integer> getVersionArray() {
            return List.of(4, 4, 0);
        }

        public int getWireVersion() {
            return 9;
        }
    }
}
