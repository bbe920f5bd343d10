package io.strandline;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Log store of Delta for folders of this machine, for any number of processes. A commit is a hard link, which fails if
 * the file exists. Delta's own log store renames a file into place, and may replace a commit that came a moment before.
 *
 * <p>A file system without hard links gets an exclusive create instead. There a reader may see the file while it is
 * written.
 */
public final class FolderLogStore extends HadoopFileSystemLogStore {
    public FolderLogStore(Configuration hadoopConf) {
        super(hadoopConf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
            throws IOException {
        StringBuilder lines = new StringBuilder();
        while (actions.hasNext()) {
            lines.append(actions.next()).append('\n');
        }
        byte[] content = lines.toString().getBytes(StandardCharsets.UTF_8);
        java.nio.file.Path target = java.nio.file.Path.of(path.toUri().getPath());
        java.nio.file.Path prepared = beside(target, UUID.randomUUID() + ".tmp");
        try {
            create(prepared, content);
            Files.deleteIfExists(beside(target, "crc")); // Hadoop's checksum of another content
            if (overwrite) {
                Files.move(prepared, target, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
            } else {
                link(prepared, target, content);
            }
        } catch (NoSuchFileException missing) { // the table was moved away, and is not begun anew
            throw (IOException) new FileNotFoundException(path.toString()).initCause(missing);
        } finally {
            Files.deleteIfExists(prepared);
        }
    }

    private static void link(java.nio.file.Path prepared, java.nio.file.Path target, byte[] content)
            throws IOException {
        try {
            Files.createLink(target, prepared);
        } catch (FileAlreadyExistsException exists) {
            if (Files.mismatch(prepared, target) != -1) { // otherwise NFS repeated a link whose answer was lost
                throw exists;
            }
        } catch (IOException | UnsupportedOperationException error) {
            if (hasLinks(prepared)) {
                throw error;
            }
            create(target, content);
        }
    }

    /** Returns whether the file system of a file has hard links. */
    private static boolean hasLinks(java.nio.file.Path file) {
        java.nio.file.Path probe = beside(file, "probe");
        try {
            Files.createLink(probe, file);
            Files.delete(probe);
            return true;
        } catch (IOException | UnsupportedOperationException error) {
            return false;
        }
    }

    /** Creates a file that must not exist. It is on the disk on return. After an error there is none. */
    private static void create(java.nio.file.Path file, byte[] content) throws IOException {
        FileChannel channel = FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        try (channel) {
            ByteBuffer rest = ByteBuffer.wrap(content);
            while (rest.hasRemaining()) {
                channel.write(rest);
            }
            channel.force(true);
        } catch (IOException error) {
            Files.deleteIfExists(file);
            throw error;
        }
    }

    private static java.nio.file.Path beside(java.nio.file.Path file, String suffix) {
        return file.resolveSibling("." + file.getFileName() + "." + suffix);
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration hadoopConf) {
        return true; // so Delta writes a checkpoint beside its place, and renames it
    }
}
